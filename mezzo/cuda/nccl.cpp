#include "mezzo/cuda/services.h"

#if __has_include(<nccl.h>)
#define USE_C10D_NCCL
#include <nccl.h>
#include <torch/csrc/cuda/nccl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "mezzo/core/error.h"
#endif

namespace mezzo::cuda {

#ifdef USE_C10D_NCCL
namespace {

/// NCCL's structures, used by libtorch's group, grow with its versions.
void check_version() {
  const std::uint64_t packed = torch::cuda::nccl::version();
  const std::uint64_t major = packed >> 32, minor = (packed >> 16) & 0xFFFF;
  MEZZO_CHECK(major == NCCL_MAJOR && minor == NCCL_MINOR,
              "dist::init: mezzo's CUDA library was built with NCCL {}.{}, and libtorch with {}.{}",
              NCCL_MAJOR, NCCL_MINOR, major, minor);
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout) {
  check_version();
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, static_cast<int>(rank),
                                                     static_cast<int>(world_size), options);
}

}  // namespace

decltype(CudaServices::make_nccl) const kMakeNccl = make_nccl;
#else
decltype(CudaServices::make_nccl) const kMakeNccl = nullptr;
#endif

}  // namespace mezzo::cuda
