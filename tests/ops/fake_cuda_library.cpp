// A fake libmezzo_cuda.so: empty tables and a build id that a test can set.
#include "mezzo/kernels/cuda_kernels.h"
#include "mezzo/runtime/cuda_services.h"

static const char* build_id = mezzo::kBuildId;

const mezzo::kernels::CudaKernels* mezzo_cuda_kernels() {
  static const mezzo::kernels::CudaKernels kernels;
  return &kernels;
}

const mezzo::CudaServices* mezzo_cuda_services() {
  static const mezzo::CudaServices services;
  return &services;
}

const char* mezzo_cuda_build_id() {
  return build_id;
}

extern "C" MEZZO_API void mezzo_set_fake_build_id(const char* id) {
  build_id = id;
}
