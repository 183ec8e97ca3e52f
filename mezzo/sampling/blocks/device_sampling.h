#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/kernels/cuda_sampling.h"
#include "mezzo/sampling/workspace.h"

/// Drawing and renumbering on the graph's device, with the CPU's results. Internal to sampling.
namespace mezzo::detail {

/// Entries of CSR rows drawn for the nodes of a hop. Ids have the graph's dtype.
struct DrawnEntries {
  at::Tensor offsets;    ///< int64 [n + 1]
  at::Tensor neighbors;  ///< [m]; renumbering replaces ids by numbers of the batch
  at::Tensor entries;    ///< [m], positions in the graph's rows
  at::Tensor weights;    ///< float32 [m]; LABOR only
};

/// One hop.
struct SampledLayer {
  DrawnEntries drawn;
  std::int64_t num_dst, num_src;
};

/// The hops of a batch, seeds first. The nodes of each hop are a prefix of `nodes`.
struct SampledBatch {
  std::vector<SampledLayer> layers;
  at::Tensor nodes;        ///< [sources of the last layer], in the graph's id dtype
  at::Tensor row_lengths;  ///< int64 [destinations of the last layer], in the graph
};

/// How many neighbours a hop draws, and its random numbers.
struct HopDraw {
  kernels::DrawCount count;
  kernels::DrawKey key;
};

/// The kernels that sampling queues on a device. Tests replace them.
struct SamplingKernels {
  void (*draw)(const kernels::CudaDrawArgs& args, at::Device device, std::int64_t num_entries);
  void (*renumber)(const kernels::CudaRenumberArgs& args, at::Device device,
                   std::int64_t num_entries);
};

/// Those of libmezzo_cuda.so. They throw InvalidArgument if it is not loaded.
SamplingKernels cuda_sampling_kernels();

/// Draws uniformly for `nodes` (int32 or int64 [n], contiguous, in range) in `rows`, all on one
/// device. row_lengths: output, int64 [n]. Synchronises once.
MEZZO_API DrawnEntries draw_on_device(const SamplingKernels& run, const Adjacency& rows,
                                      const at::Tensor& nodes, const HopDraw& hop,
                                      at::Tensor& row_lengths);

/// The hops of a batch from `seeds` (integers [n] in [0, rows), on the CPU or the device of
/// `rows`). Synchronises once for the seeds and twice a hop. Throws InvalidArgument for repeated
/// seeds.
MEZZO_API SampledBatch sample_on_device(const SamplingKernels& run, const Adjacency& rows,
                                        const at::Tensor& seeds, const std::vector<HopDraw>& hops,
                                        Workspace& workspace);

}  // namespace mezzo::detail
