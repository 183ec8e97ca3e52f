#include "mezzo/cuda/services.h"

#include <array>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

namespace mezzo::cuda {
namespace {

int compute_capability(c10::DeviceIndex device) {
  int major = 0, minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

std::vector<std::string> gpu_addresses() {
  std::vector<std::string> addresses;
  for (int device = 0; device < c10::cuda::device_count(); ++device) {
    std::array<char, 32> address{};
    C10_CUDA_CHECK(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device));
    addresses.emplace_back(address.data());
  }
  return addresses;
}

}  // namespace
}  // namespace mezzo::cuda

const mezzo::CudaServices* mezzo_cuda_services() {
  static const mezzo::CudaServices services{.architectures = MEZZO_CUDA_ARCHITECTURES,
                                            .compute_capability = mezzo::cuda::compute_capability,
                                            .make_graph = mezzo::cuda::make_graph,
                                            .make_nccl = mezzo::cuda::kMakeNccl,
                                            .gpu_addresses = mezzo::cuda::gpu_addresses};
  return &services;
}

const char* mezzo_cuda_build_id() {
  return mezzo::kBuildId;
}
