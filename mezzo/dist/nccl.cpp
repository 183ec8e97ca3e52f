#include "mezzo/dist/nccl.h"

#include "mezzo/core/error.h"

#ifdef MEZZO_WITH_CUDA
#define USE_C10D_NCCL
#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#endif

namespace mezzo::dist::detail {

#ifdef MEZZO_WITH_CUDA

void require_nccl() {
  MEZZO_CHECK(c10::cuda::device_count() > 0, "dist::init: NCCL needs a GPU, and there is none");
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(rank),
                                                     static_cast<int>(world_size), options);
}

c10::DeviceIndex use_gpu(std::int64_t local_rank) {
  const int count = c10::cuda::device_count();
  const std::int64_t number = count == 1 ? 0 : local_rank;
  MEZZO_CHECK(number < count, "dist::init: local rank {} has no GPU: this machine has {}",
              local_rank, count);
  const auto index = static_cast<c10::DeviceIndex>(number);
  c10::cuda::set_device(index);
  return index;
}

#else

void require_nccl() {
  mezzo::detail::raise<InvalidArgument>(
      "dist::init: this build has no NCCL (it was built without CUDA)");
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                            std::int64_t /*rank*/, std::int64_t /*world_size*/,
                                            std::chrono::milliseconds /*timeout*/) {
  require_nccl();
  return {};
}

c10::DeviceIndex use_gpu(std::int64_t /*local_rank*/) {
  require_nccl();
  return -1;
}

#endif

}  // namespace mezzo::dist::detail
