#include "platform/gpu/launch.h"
#include "platform/gpu/movable_graph.h"

#if defined(CONVX_CUDA)
#include <cuda.h>

#include <cstring>
#include <stdexcept>
#include <string>
#endif

namespace convx {

#if defined(CONVX_CUDA)
namespace {

// The driver's functions: the runtime's know the kernels of their own library alone.
struct Driver {
  decltype(&cuGraphKernelNodeGetParams) get_parameters = nullptr;
  decltype(&cuGraphExecKernelNodeSetParams) set_parameters = nullptr;
  decltype(&cuFuncGetParamInfo) function_parameter = nullptr;
  decltype(&cuKernelGetParamInfo) kernel_parameter = nullptr;

  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

  bool is_complete() const {
    return get_parameters != nullptr && set_parameters != nullptr && function_parameter != nullptr &&
           kernel_parameter != nullptr;
  }

 private:
  Driver() {
    find("cuGraphKernelNodeGetParams", 12000, get_parameters);
    find("cuGraphExecKernelNodeSetParams", 12000, set_parameters);
    find("cuFuncGetParamInfo", 12040, function_parameter);
    find("cuKernelGetParamInfo", 12040, kernel_parameter);
  }

  template <class Function>
  static void find(const char* name, unsigned version, Function& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const auto error = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess) {
      function = reinterpret_cast<Function>(found);
    }
    (void)cudaGetLastError();  // of a driver that is too old for it
  }
};

void check_driver(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) {
    throw std::runtime_error(std::string("convx: ") + what + " failed with CUDA's error " +
                             std::to_string(result));
  }
}

// A kernel of the graph, and copies of its parameters.
class KernelNode {
 public:
  explicit KernelNode(cudaGraphNode_t node) : node_(node) {
    const Driver& driver = Driver::get();
    check_driver(driver.get_parameters(node, &parameters_), "cuGraphKernelNodeGetParams");
    if (parameters_.kernelParams == nullptr) return;  // one packed buffer of a launcher's own
    std::vector<size_t> offsets;
    size_t offset = 0, size = 0;
    while ((parameters_.func != nullptr
                ? driver.function_parameter(parameters_.func, offsets.size(), &offset, &size)
                : driver.kernel_parameter(parameters_.kern, offsets.size(), &offset, &size)) ==
           CUDA_SUCCESS) {
      words_.resize((offset + size) / sizeof(uintptr_t) + 1);
      std::memcpy(bytes() + offset, parameters_.kernelParams[offsets.size()], size);
      offsets.push_back(offset);
    }
    for (const size_t each : offsets) places_.push_back(bytes() + each);
    parameters_.kernelParams = places_.data();
    parameters_.extra = nullptr;
  }
  KernelNode(KernelNode&&) = default;

  // Looks for the tensor's address, or one within it.
  size_t find(size_t tensor, const GraphTensor& sought) {
    const size_t before = uses_.size();
    for (size_t word = 0; word < words_.size(); ++word) {
      const uintptr_t offset = words_[word] - sought.address;
      if (words_[word] >= sought.address && offset < (sought.is_result ? 1 : sought.bytes)) {
        uses_.push_back({word, tensor, offset});
      }
    }
    return uses_.size() - before;
  }
  bool is_used() const { return !uses_.empty(); }

  void move(CUgraphExec executable, const std::vector<uintptr_t>& addresses) {
    bool has_moved = false;
    for (const Use& use : uses_) {
      const uintptr_t address = addresses[use.tensor] + use.offset;
      has_moved |= words_[use.word] != address;
      words_[use.word] = address;
    }
    if (has_moved) {
      check_driver(Driver::get().set_parameters(executable, node_, &parameters_),
                   "cuGraphExecKernelNodeSetParams");
    }
  }

 private:
  struct Use {
    size_t word, tensor;
    uintptr_t offset;
  };

  unsigned char* bytes() { return reinterpret_cast<unsigned char*>(words_.data()); }

  cudaGraphNode_t node_;
  CUDA_KERNEL_NODE_PARAMS parameters_ = {};
  std::vector<uintptr_t> words_;  // of the parameters, as they lie: addresses are at multiples of their size
  std::vector<void*> places_;
  std::vector<Use> uses_;
};

class CudaGraph final : public MovableGraph {
 public:
  CudaGraph(cudaGraph_t graph, CUgraphExec executable, const std::vector<GraphTensor>& tensors)
      : executable_(executable), uses_(tensors.size()) {
    size_t count = 0;
    check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
    std::vector<cudaGraphNode_t> nodes(count);
    check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
    for (const cudaGraphNode_t each : nodes) {
      cudaGraphNodeType type;
      check(cudaGraphNodeGetType(each, &type), "cudaGraphNodeGetType");
      if (type != cudaGraphNodeTypeKernel) continue;
      size_t dependents = 0;
      check(cudaGraphNodeGetDependentNodes(each, nullptr, nullptr, &dependents),
            "cudaGraphNodeGetDependentNodes");
      KernelNode node(each);
      for (size_t i = 0; i < tensors.size(); ++i) {
        if (!tensors[i].is_result || dependents == 0) uses_[i] += node.find(i, tensors[i]);
      }
      if (node.is_used()) nodes_.push_back(std::move(node));
    }
  }

  const std::vector<size_t>& uses() const override { return uses_; }

  void move(const std::vector<uintptr_t>& addresses) override {
    if (addresses.size() != uses_.size()) throw std::runtime_error("convx: an address for each tensor");
    for (KernelNode& each : nodes_) each.move(executable_, addresses);
  }

 private:
  CUgraphExec executable_;
  std::vector<size_t> uses_;
  std::vector<KernelNode> nodes_;
};

}  // namespace

std::unique_ptr<MovableGraph> movable_graph(void* graph, void* executable,
                                            const std::vector<GraphTensor>& tensors) {
  if (!Driver::get().is_complete()) return nullptr;
  return std::make_unique<CudaGraph>(static_cast<cudaGraph_t>(graph), static_cast<CUgraphExec>(executable),
                                     tensors);
}
#else
std::unique_ptr<MovableGraph> movable_graph(void*, void*, const std::vector<GraphTensor>&) {
  return nullptr;
}
#endif

}  // namespace convx
