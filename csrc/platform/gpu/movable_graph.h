// Captured graphs whose tensors may lie elsewhere at each launch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace convx {

// What a graph was captured with: a tensor that it reads, or one that it leaves for others.
struct GraphTensor {
  uintptr_t address;
  size_t bytes;
  bool is_result;
};

// Of inputs, addresses within them that kernels are given; of results, their own address, where the graph's
// last kernels are given it: memory of a result may have been another tensor's before. Nobody but a kernel
// is told of a move, so that whoever moves tensors has to see that nobody else needs to be.
class MovableGraph {
 public:
  MovableGraph() = default;
  MovableGraph(const MovableGraph&) = delete;
  MovableGraph& operator=(const MovableGraph&) = delete;
  virtual ~MovableGraph() = default;

  // How many addresses kernels are given, of each tensor.
  virtual const std::vector<size_t>& uses() const = 0;
  // Where each tensor is for launches from now on; those before are not affected. Throws what fails.
  virtual void move(const std::vector<uintptr_t>& addresses) = 0;
};

// graph and executable: of the runtime, which have to outlive the result. Null where the runtime can't change
// what kernels of a graph are given, as AMD's and CUDA drivers before 12.4. Throws what fails.
std::unique_ptr<MovableGraph> movable_graph(void* graph, void* executable,
                                            const std::vector<GraphTensor>& tensors);

}  // namespace convx
