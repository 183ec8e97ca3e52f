#include "bench/cases/device_graphs.h"

#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/runtime/memory.h"

namespace mezzo::bench {
namespace {

bool dry_run = false;

/// Edges of an R-MAT graph of 2^levels nodes: each level picks a quadrant of the matrix.
std::pair<at::Tensor, at::Tensor> rmat_edges(std::int64_t levels, std::int64_t num_edges) {
  constexpr double kA = 0.57, kB = 0.19, kC = 0.19;
  const at::TensorOptions options = at::TensorOptions(at::kLong).device(gpu());
  at::Tensor src = at::zeros({num_edges}, options), dst = at::zeros({num_edges}, options);
  for (std::int64_t level = 0; level < levels; ++level) {
    const at::Tensor draw = at::rand({num_edges}, options.dtype(at::kFloat));
    const at::Tensor lower = draw >= kA + kB;
    const at::Tensor right =
        (draw >= kA).logical_and(draw < kA + kB).logical_or(draw >= kA + kB + kC);
    src.mul_(2).add_(lower);
    dst.mul_(2).add_(right);
  }
  return {src, dst};
}

}  // namespace

void measure_on_cpu() {
  dry_run = true;
}

bool is_dry_run() {
  return dry_run;
}

at::Device gpu() {
  if (dry_run) return at::kCPU;
  static const at::Device cuda = [] {
    const at::Device device = default_device();
    MEZZO_CHECK(device.is_cuda(), "expected a CUDA device with mezzo's kernels, found none");
    return device;
  }();
  return cuda;
}

Topology rmat_on_device(const GraphSize& given) {
  const GraphSize size = dry_run ? GraphSize{given.name, 64, 1024} : given;
  at::manual_seed(0);
  const auto levels = static_cast<std::int64_t>(std::ceil(std::log2(size.num_nodes)));
  const auto [src, dst] = rmat_edges(levels, size.num_edges);
  const at::Tensor order = at::randperm(size.num_nodes, at::TensorOptions(at::kLong).device(gpu()));
  const auto renamed = [&](const at::Tensor& ids) {
    return order.index_select(0, ids.remainder(size.num_nodes));
  };
  const Topology topology =
      Topology::from_coo(renamed(src), renamed(dst), size.num_nodes, size.num_nodes);
  topology.csc();
  topology.csr();
  return topology;
}

}  // namespace mezzo::bench
