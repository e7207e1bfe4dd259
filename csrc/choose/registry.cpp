#include "choose/registry.h"

#include "methods/cuconv/cuconv.h"
#include "methods/depthwise/depthwise.h"
#include "methods/filter2d/filter2d.h"
#include "methods/hntmp/hntmp.h"
#include "methods/inverted_residual/inverted_residual.h"
#include "methods/native/native.h"
#include "methods/pointwise/pointwise.h"
#include "methods/squeeze_excite/squeeze_excite.h"

namespace convx {

template <>
const std::vector<const Method*>& methods() {
  static const std::vector<const Method*> table = {&depthwise::method, &filter2d::method, &pointwise::method,
                                                   &hntmp::method,     &cuconv::method,   &native::method};
  return table;
}

template <>
const std::vector<const MethodOf<FilterProblem>*>& methods() {
  static const std::vector<const MethodOf<FilterProblem>*> table = {&filter2d::filtering};
  return table;
}

template <>
const std::vector<const MethodOf<BlockProblem>*>& methods() {
  static const std::vector<const MethodOf<BlockProblem>*> table = {&inverted_residual::method,
                                                                   &inverted_residual::native};
  return table;
}

template <>
const std::vector<const MethodOf<ExciteProblem>*>& methods() {
  static const std::vector<const MethodOf<ExciteProblem>*> table = {&squeeze_excite::method,
                                                                    &squeeze_excite::native};
  return table;
}

}  // namespace convx
