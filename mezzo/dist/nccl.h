#pragma once

#include <chrono>
#include <cstdint>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace mezzo::dist::detail {

/// Throws InvalidArgument where this library was built without CUDA or the machine has no GPU.
void require_nccl();

/// NCCL on the current device; connects at the first collective.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout);

/// Makes the GPU of that number the current one of the calling thread. Throws InvalidArgument.
void use_gpu(std::int64_t index);

}  // namespace mezzo::dist::detail
