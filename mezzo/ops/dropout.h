#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/kernels/dropout.h"

// What the operators that drop share; internal to the library.

namespace mezzo {

/// What a dropout draws under: the number, plus (modulo 2^64) the one in `offset`, which kernels on
/// CUDA read when they run.
struct DropoutSeed {
  std::int64_t number = 0;
  std::optional<at::Tensor> offset = {};  ///< int64, one element, on the device of the operands
};

/// While one exists, draw_dropout_seed() on this thread takes its numbers where a captured step has
/// to: steps before a capture then draw as the repeated ones go on to. They nest.
class MEZZO_API DeviceDraws {
 public:
  DeviceDraws();
  ~DeviceDraws();
  DeviceDraws(const DeviceDraws&) = delete;
  DeviceDraws& operator=(const DeviceDraws&) = delete;

 private:
  bool before_;
};

/// One number of libtorch's CPU generator, so that torch::manual_seed rules every draw and the same
/// elements drop on every device. Within DeviceDraws, and where the work of `device` is being
/// captured, an offset from libtorch's generator of `device` instead, drawn by a kernel that is
/// captured too: each replay of the graph draws a new one.
MEZZO_API DropoutSeed draw_dropout_seed(at::Device device);

/// Throws InvalidArgument naming `what` unless the probability is in [0, 1].
void check_dropout(const char* what, double probability);

/// What kernels on `device` are told: the nearest step of the probability, and the seed. On the CPU
/// the offset is added here; on CUDA its memory is read later and has to live as long as that of
/// the operands. Throws InvalidArgument as check_dropout, and for an offset that is not one int64
/// on `device`.
DropoutLevel dropout_level(const char* what, double probability, std::int64_t seed,
                           const std::optional<at::Tensor>& seed_offset, at::Device device);

}  // namespace mezzo
