#pragma once

#include <chrono>
#include <cstdint>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace mezzo::dist::detail {

/// Throws InvalidArgument if mezzo's CUDA library is not loaded or lacks NCCL, or if the machine
/// has no GPU.
void require_nccl();

/// Creates NCCL on the current device; connects at the first collective.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout);

/// Selects the GPU with the index local_rank for the calling thread, or the only visible one
/// (launchers may show each process only its own). Returns its index. Throws InvalidArgument.
c10::DeviceIndex use_gpu(std::int64_t local_rank);

}  // namespace mezzo::dist::detail
