#include "methods/finish.cuh"
#include "methods/finish.h"

namespace convx {
namespace {

template <class T>
void launch(const ConvProblem& problem, const EpiloguePointers& epilogue, void* sums, Stream stream) {
  launch_finish(finish_arguments<T>(problem, epilogue, sums), stream);
}

}  // namespace

void finish_gpu(const ConvProblem& problem, const EpiloguePointers& epilogue, void* sums, Stream stream) {
  switch (problem.dtype) {
    case DType::float32:
      return launch<float>(problem, epilogue, sums, stream);
    case DType::float64:
      return launch<double>(problem, epilogue, sums, stream);
    case DType::float16:
      return launch<float16>(problem, epilogue, sums, stream);
    case DType::bfloat16:
      return launch<bfloat16>(problem, epilogue, sums, stream);
  }
}

}  // namespace convx
