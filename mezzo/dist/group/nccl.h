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

/// Throws InvalidArgument if mezzo's CUDA library is not loaded, or has no NCCL, and if the
/// machine has no GPU.
void require_nccl();

/// NCCL on the current device; connects at the first collective.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout);

/// Makes the GPU numbered by the local rank the current one of the calling thread, or the only one
/// that is visible: launchers may show each process its own alone. Returns its number. Throws
/// InvalidArgument.
c10::DeviceIndex use_gpu(std::int64_t local_rank);

}  // namespace mezzo::dist::detail
