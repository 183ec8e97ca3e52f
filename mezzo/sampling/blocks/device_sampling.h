#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/graph/topology.h"
#include "mezzo/kernels/cuda_sampling.h"
#include "mezzo/sampling/workspace.h"

/// Drawing and renumbering on the device of the graph: what is drawn, and every order, is that of
/// the CPU. Internal to sampling.
namespace mezzo::detail {

/// What was drawn for the nodes of a hop. Ids have the graph's dtype.
struct DrawnSlots {
  at::Tensor offsets;    ///< int64 [n + 1]
  at::Tensor neighbors;  ///< [m]; numbers of the batch once it is renumbered
  at::Tensor slots;      ///< [m]
  at::Tensor weights;    ///< float32 [m], LABOR's
};

/// One hop.
struct SampledLayer {
  DrawnSlots drawn;
  std::int64_t num_dst, num_src;
};

/// The hops of a batch, from the seeds on. Every list of nodes is the beginning of the last.
struct SampledBatch {
  std::vector<SampledLayer> layers;
  at::Tensor nodes;        ///< [sources of the last layer], of the graph's id dtype
  at::Tensor row_lengths;  ///< int64 [destinations of the last layer], in the graph
};

/// How many neighbours a hop draws, and with which numbers.
struct HopDraw {
  kernels::DrawCount count;
  kernels::DrawKey key;
};

/// The kernels that sampling queues on a device; those of a GPU unless a test takes others.
struct SamplingKernels {
  void (*draw)(const CudaDrawArgs& args, at::Device device, std::int64_t num_slots);
  void (*renumber)(const CudaRenumberArgs& args, at::Device device, std::int64_t num_slots);
};

/// Of libmezzo_cuda.so. They throw InvalidArgument where that is not loaded.
SamplingKernels cuda_sampling_kernels();

/// Draws with equal probability for `nodes` (int32 or int64 [n], contiguous, in range) in `rows`,
/// all on one device. row_lengths: receives theirs, int64 [n]. Synchronises once.
MEZZO_API DrawnSlots draw_on_device(const SamplingKernels& run, const Adjacency& rows,
                                    const at::Tensor& nodes, const HopDraw& hop,
                                    at::Tensor& row_lengths);

/// The hops of a batch from `seeds` (integers [n] in [0, rows), on the CPU or the device of
/// `rows`). Synchronises once for the seeds and twice a hop. Throws InvalidArgument for seeds that
/// are there twice.
MEZZO_API SampledBatch sample_on_device(const SamplingKernels& run, const Adjacency& rows,
                                        const at::Tensor& seeds, const std::vector<HopDraw>& hops,
                                        Workspace& workspace);

}  // namespace mezzo::detail
