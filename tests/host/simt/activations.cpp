// Activations of device code as the host executor compiles them: of csrc/methods/activate.cuh, of one value
// and of a row, and of the text that the generator writes (CONVX_GENERATED, a header that the test makes).
// Reads lines "name value", writes what each form gives in float and in double.
#include <cmath>
#include <cstdio>

#include "methods/activate.cuh"
#include CONVX_GENERATED

namespace {

using convx::Activation;

template <class A>
void print(double given, Activation activation) {
  const A value = static_cast<A>(given);
  A row[3] = {A(1), value, A(-1)};
  convx::activate<A>(row, activation);
  const A results[3] = {convx::activated<A>(value, activation), row[1], generated(value, activation)};
  for (A result : results) std::printf("%a ", static_cast<double>(result));
}

}  // namespace

int main() {
  char name[32];
  double value = 0;
  while (std::scanf("%31s %la", name, &value) == 2) {
    const Activation activation = convx::parse_activation(name);
    print<float>(value, activation);
    print<double>(value, activation);
    std::printf("\n");
  }
}
