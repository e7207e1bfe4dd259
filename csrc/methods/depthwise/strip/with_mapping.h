// From the run-time mapping of a view to the compile-time one that kernels are made for.
#pragma once
#include <type_traits>

#include "methods/depthwise/strip/tiles.h"

namespace convx::depthwise::strip {

// Calls body(std::integral_constant<Mapping, mapping>()).
template <class Body>
void with_mapping(Mapping mapping, const Body& body) {
  switch (mapping) {
    case Mapping::correlate1:
      return body(std::integral_constant<Mapping, Mapping::correlate1>());
    case Mapping::correlate2:
      return body(std::integral_constant<Mapping, Mapping::correlate2>());
    case Mapping::transpose2:
      return body(std::integral_constant<Mapping, Mapping::transpose2>());
  }
}

}  // namespace convx::depthwise::strip
