#include <stdexcept>

#include "methods/pooling/kernel.cuh"
#include "methods/pooling/pooling.h"
#include "platform/gpu/launch.h"
#include "problem/divide.h"

namespace convx::pooling {
namespace {

template <class T, int N, Pooling Kind, int Filter, int Stride>
void launch(const PoolingProblem& p, const Pointers& pointers, Stream stream) {
  const bool is_nhwc = p.layout == Layout::nhwc;
  const PoolingWindow &down = p.down, &across = p.across;
  const int64_t vectors = is_nhwc ? p.channels / N : 1, planes = is_nhwc ? p.batch : p.batch * p.channels;
  const int64_t column = is_nhwc ? p.channels : 1,
                runs = divide_up(down.results, int64_t{rows_of_thread(Filter)});
  const int64_t threads = planes * runs * across.results * vectors;
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  Shape s{};
  s.vectors = divide_by(vectors), s.columns = divide_by(across.results), s.runs = divide_by(runs);
  s.threads = static_cast<uint32_t>(threads);
  s.height = number(down.extent), s.width = number(across.extent), s.rows = number(down.results);
  s.column = number(column), s.row = number(column * across.extent);
  s.plane = number(column * across.extent * down.extent);
  s.result_row = number(column * across.results);
  s.result_plane = number(column * across.results * down.results);
  s.filter_height = number(down.filter), s.filter_width = number(across.filter);
  s.stride_down = number(down.stride), s.stride_across = number(across.stride);
  s.padding_down = number(down.padding), s.padding_across = number(across.padding);
  s.dilation_down = number(down.dilation), s.dilation_across = number(across.dilation);
  s.divisor = number(p.divisor), s.counts_padding = p.counts_padding;
  launch_in_turn(pool_kernel<T, N, Kind, Filter, Stride>, "pooling",
                 Grid{static_cast<uint32_t>(divide_up(threads, int64_t{kThreads}))}, kThreads, 0, stream,
                 static_cast<const T*>(pointers.input), static_cast<T*>(pointers.result), s);
}

template <class T, int N, Pooling Kind>
void launch_kind(const PoolingProblem& p, const Pointers& pointers, Stream stream) {
  switch (square_of(p)) {
    case Square::three_by_two:
      return launch<T, N, Kind, 3, 2>(p, pointers, stream);
    case Square::three:
      return launch<T, N, Kind, 3, 1>(p, pointers, stream);
    case Square::two_by_two:
      return launch<T, N, Kind, 2, 2>(p, pointers, stream);
    case Square::none:  // never of averages: gpu_takes
      return launch<T, N, Pooling::max, 0, 0>(p, pointers, stream);
  }
}

template <class T, int N>
void launch_vectors(const PoolingProblem& p, const Pointers& pointers, Stream stream) {
  if (p.kind == Pooling::max) return launch_kind<T, N, Pooling::max>(p, pointers, stream);
  launch_kind<T, N, Pooling::average>(p, pointers, stream);
}

// Whole vectors where there are results for threads enough, which hide the latency of loads.
template <class T>
void launch_dtype(const PoolingProblem& p, const Pointers& pointers, Stream stream) {
  constexpr int64_t kFew = 1 << 17;
  constexpr int kNear = 16 / static_cast<int>(sizeof(T)), kWord = 4 / static_cast<int>(sizeof(T));
  const int64_t results = p.batch * p.channels * p.down.results * p.across.results;
  if (p.layout == Layout::nchw) return launch_vectors<T, 1>(p, pointers, stream);
  if (p.channels % kNear == 0 && results >= kNear * kFew) {
    return launch_vectors<T, kNear>(p, pointers, stream);
  }
  if (p.channels % kWord == 0) return launch_vectors<T, kWord>(p, pointers, stream);
  launch_vectors<T, 1>(p, pointers, stream);
}

}  // namespace

void launch_gpu(const PoolingProblem& problem, const Pointers& pointers, Stream stream) {
  if (!gpu_takes(problem)) throw std::logic_error("convx: no kernel for such a pooling");
  switch (problem.dtype) {
    case DType::bfloat16:
      return launch_dtype<bfloat16>(problem, pointers, stream);
    case DType::float16:
      return launch_dtype<float16>(problem, pointers, stream);
    default:
      return launch_dtype<float>(problem, pointers, stream);
  }
}

}  // namespace convx::pooling
