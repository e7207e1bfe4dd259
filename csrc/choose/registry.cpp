#include "choose/registry.h"

#include "methods/cuconv/cuconv.h"
#include "methods/depthwise/depthwise.h"
#include "methods/filter2d/filter2d.h"
#include "methods/hntmp/hntmp.h"
#include "methods/native/native.h"
#include "methods/pointwise/pointwise.h"

namespace convx {

const std::vector<const Method*>& methods() {
  static const std::vector<const Method*> table = {&depthwise::method, &filter2d::method, &pointwise::method,
                                                   &hntmp::method,     &cuconv::method,   &native::method};
  return table;
}

}  // namespace convx
