#include "mezzo/sampling/blocks/device_sampling.h"

#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/device.h"
#include "mezzo/sampling/workspace_state.h"

namespace mezzo::detail {
namespace {

constexpr std::int32_t kNoNumber = std::numeric_limits<std::int32_t>::max();

/// Numbers the nodes of a batch in order of appearance.
class DeviceNumbers {
 public:
  DeviceNumbers(const SamplingKernels& run, const at::Tensor& no_nodes, std::int64_t num_nodes,
                DeviceTable& table)
      : run_(run), table_(table), nodes_(no_nodes) {
    const at::Tensor& first_at = table.first_at;
    const bool is_reusable = table.is_clean && first_at.defined() &&
                             first_at.numel() >= num_nodes &&
                             first_at.device() == no_nodes.device();
    if (!is_reusable) {
      table.first_at = at::full({num_nodes}, kNoNumber, no_nodes.options().dtype(at::kInt));
    }
    table.is_clean = false;  // until forget(), which an error skips
  }

  /// Replaces `ids` ([m], contiguous) by their numbers, in place; new nodes get the next ones.
  void add(const at::Tensor& ids) {
    const std::int64_t count = ids.numel();
    MEZZO_CHECK(count <= kNoNumber - size(),
                "sample: expected fewer than 2^31 nodes and neighbours in a hop on {}, got {}",
                ids.device().str(), count + size());
    if (count == 0) return;
    const at::Tensor is_first = at::empty({count}, ids.options().dtype(at::kInt));
    kernels::CudaRenumberArgs args = args_of(ids);
    args.num_known = size();
    args.is_first = is_first.mutable_data_ptr<std::int32_t>();
    queue(args, kernels::CudaRenumberArgs::Step::kMark);
    queue(args, kernels::CudaRenumberArgs::Step::kFlag);
    const at::Tensor running = is_first.cumsum(0, at::kInt);
    const std::int64_t num_new = running[-1].item<std::int32_t>();
    const at::Tensor known = std::exchange(nodes_, at::empty({size() + num_new}, nodes_.options()));
    nodes_.narrow(0, 0, known.numel()).copy_(known);
    args.running = running.const_data_ptr<std::int32_t>();
    args.nodes = nodes_.mutable_data_ptr();
    queue(args, kernels::CudaRenumberArgs::Step::kNumber);
    queue(args_of(nodes_), kernels::CudaRenumberArgs::Step::kRemember);
  }

  /// Clears the table. The last call.
  void forget() {
    queue(args_of(nodes_), kernels::CudaRenumberArgs::Step::kForget);
    table_.is_clean = true;
  }

  /// The node of each number.
  const at::Tensor& nodes() const { return nodes_; }
  std::int64_t size() const { return nodes_.numel(); }

 private:
  kernels::CudaRenumberArgs args_of(const at::Tensor& ids) const {
    return {.ids = ids.mutable_data_ptr(),
            .is_int64 = ids.scalar_type() == at::kLong,
            .count = ids.numel(),
            .first_at = table_.first_at.mutable_data_ptr<std::int32_t>()};
  }
  void queue(kernels::CudaRenumberArgs args, kernels::CudaRenumberArgs::Step step) const {
    args.step = step;
    run_.renumber(args, nodes_.device(), /*num_entries=*/0);
  }

  const SamplingKernels& run_;
  DeviceTable& table_;
  at::Tensor nodes_;
};

/// Assigns the first numbers of the batch to the seeds.
void number_device_seeds(const at::Tensor& seeds, DeviceNumbers& numbers) {
  const at::Tensor ids =
      seeds.to(numbers.nodes().options(), /*non_blocking=*/false, /*copy=*/true).contiguous();
  numbers.add(ids);
  if (numbers.size() == ids.numel()) return;
  const at::Tensor repeats = at::ne(ids, at::arange(ids.numel(), ids.options())).nonzero();
  detail::raise<InvalidArgument>("sample: expected distinct seeds, got {} more than once",
                                 seeds[repeats[0].item<std::int64_t>()].item<std::int64_t>());
}

}  // namespace

SamplingKernels cuda_sampling_kernels() {
  return {.draw = &OnCuda::launch<kernels::CudaDrawArgs>,
          .renumber = &OnCuda::launch<kernels::CudaRenumberArgs>};
}

DrawnEntries draw_on_device(const SamplingKernels& run, const Adjacency& rows,
                            const at::Tensor& nodes, const HopDraw& hop, at::Tensor& row_lengths) {
  constexpr std::int64_t kMostRows = std::int64_t{1} << 30;
  const std::int64_t num_nodes = nodes.numel();
  const at::Device device = nodes.device();
  MEZZO_CHECK(num_nodes < kMostRows, "sample: expected fewer than {} nodes in a hop on {}, got {}",
              kMostRows, device.str(), num_nodes);
  const at::Tensor begins = at::empty({num_nodes}, rows.indptr.options());
  const at::Tensor counts = at::zeros({num_nodes + 1}, rows.indptr.options());
  row_lengths = at::empty_like(begins);
  kernels::CudaDrawArgs args{
      .indptr = rows.indptr.const_data_ptr<std::int64_t>(),
      .indices = {rows.indices.const_data_ptr(), rows.indices.scalar_type() == at::kLong},
      .nodes = {nodes.const_data_ptr(), nodes.scalar_type() == at::kLong},
      .num_nodes = num_nodes,
      .count = hop.count,
      .key = hop.key,
      .begins = begins.mutable_data_ptr<std::int64_t>(),
      .degrees = row_lengths.mutable_data_ptr<std::int64_t>(),
      .counts = counts.mutable_data_ptr<std::int64_t>() + 1};
  run.draw(args, device, /*num_entries=*/0);

  DrawnEntries drawn;
  drawn.offsets = counts.cumsum(0);
  const auto total = drawn.offsets[-1].item<std::int64_t>();
  drawn.neighbors = at::empty({total}, rows.indices.options());
  drawn.entries = at::empty_like(drawn.neighbors);
  args.offsets = drawn.offsets.const_data_ptr<std::int64_t>();
  args.entries = drawn.entries.mutable_data_ptr();
  args.neighbors = drawn.neighbors.mutable_data_ptr();
  run.draw(args, device, total);
  return drawn;
}

SampledBatch sample_on_device(const SamplingKernels& run, const Adjacency& rows,
                              const at::Tensor& seeds, const std::vector<HopDraw>& hops,
                              Workspace& workspace) {
  DeviceNumbers numbers(run, at::empty({0}, rows.indices.options()), rows.indptr.numel() - 1,
                        workspace.state().device_table);
  number_device_seeds(seeds, numbers);
  SampledBatch batch;
  for (const HopDraw& hop : hops) {
    const std::int64_t num_dst = numbers.size();
    DrawnEntries drawn = draw_on_device(run, rows, numbers.nodes(), hop, batch.row_lengths);
    numbers.add(drawn.neighbors);
    batch.layers.push_back({std::move(drawn), num_dst, numbers.size()});
  }
  batch.nodes = numbers.nodes();
  numbers.forget();
  return batch;
}

}  // namespace mezzo::detail
