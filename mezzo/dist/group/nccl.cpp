#include "mezzo/dist/group/nccl.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "mezzo/core/error.h"
#include "mezzo/runtime/cuda_services.h"

namespace mezzo::dist::detail {
namespace {

std::int64_t gpu_count() {
  return at::hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0;
}

}  // namespace

void require_nccl() {
  const CudaServices& services = required_cuda_services("dist::init: NCCL");
  MEZZO_CHECK(services.make_nccl != nullptr,
              "dist::init: mezzo's CUDA library was built without NCCL");
  MEZZO_CHECK(gpu_count() > 0, "dist::init: NCCL needs a GPU, and there is none");
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout) {
  require_nccl();
  return cuda_services()->make_nccl(store, rank, world_size, timeout);
}

c10::DeviceIndex use_gpu(std::int64_t local_rank) {
  const std::int64_t count = gpu_count();
  const std::int64_t number = count == 1 ? 0 : local_rank;
  MEZZO_CHECK(number < count, "dist::init: local rank {} has no GPU: this machine has {}",
              local_rank, count);
  const auto index = static_cast<c10::DeviceIndex>(number);
  c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice({c10::kCUDA, index});
  return index;
}

}  // namespace mezzo::dist::detail
