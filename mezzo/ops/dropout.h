#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/kernels/dropout.h"

namespace mezzo::detail {

/// The seed of a dropout: `number` plus the value of `offset` modulo 2^64. CUDA kernels read the
/// offset when they run.
struct DropoutSeed {
  std::int64_t number = 0;
  std::optional<at::Tensor> offset = {};  ///< int64, one element, on the device of the operands
};

/// While one exists, draw_dropout_seed() on this thread uses the device's generator, as a captured
/// step must, so that steps before a capture and its replays draw from one sequence. They nest.
class MEZZO_API DeviceDraws {
 public:
  DeviceDraws();
  ~DeviceDraws();
  DeviceDraws(const DeviceDraws&) = delete;
  DeviceDraws& operator=(const DeviceDraws&) = delete;

 private:
  bool before_;
};

/// One number of libtorch's CPU generator, so that torch::manual_seed seeds every draw and each
/// device drops the same elements. Within DeviceDraws, and while `device` captures a graph, an
/// offset from libtorch's generator of `device` instead; the kernel that draws it is captured too,
/// so each replay draws a new one.
MEZZO_API DropoutSeed draw_dropout_seed(at::Device device);

/// Throws InvalidArgument, which starts with `what`, unless the probability is in [0, 1].
void check_dropout(const char* what, double probability);

/// The kernels' argument: the probability, rounded to a step, and the seed. The CPU reads the
/// offset here; a CUDA kernel reads it later, so it must live as long as the operands. Throws
/// InvalidArgument as check_dropout, and for an offset that is not one int64 on `device`.
kernels::DropoutLevel dropout_level(const char* what, double probability, std::int64_t seed,
                                    const std::optional<at::Tensor>& seed_offset,
                                    at::Device device);

}  // namespace mezzo::detail
