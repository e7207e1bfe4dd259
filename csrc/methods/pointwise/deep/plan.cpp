#include "methods/deep/plans.h"
#include "methods/pointwise/family.h"
#include "methods/pointwise/product.h"
#include "methods/pointwise/tensor/access.h"

namespace convx::pointwise {
namespace {

bool is_one(const ConvProblem& p, const Product& product, const DeviceTraits& device) {
  return p.operation != Operation::weight_grad && deep::has_whole_pieces(p, product.depth, product.rows) &&
         p.dtype != DType::float64 && p.groups == 1 && product.same_pixels && matrix::has_units(device) &&
         product.columns <= deep::kMostPixels &&
         product.columns * product.depth < int64_t{1} << 30;  // the source's elements are counted in 32 bits
}

}  // namespace

void append_deep(const ConvProblem& problem, const DeviceTraits& device, std::vector<Plan>& plans) {
  const Product product = product_of(problem);
  if (!is_one(problem, product, device)) return;
  const matrix::Precision packed =
      problem.dtype == DType::float32 ? matrix::kFloat32 : matrix::precision_of(problem, device);
  Plan plan;
  plan.candidate = "deep";
  plan.kernel = kDeep;
  plan.packing = tensor::packing_name(packed, tensor::Form<tensor::kChannels>::kOrder, device.lanes);
  deep::append_plans(problem, device, product, false, plan, plans);
}

}  // namespace convx::pointwise
