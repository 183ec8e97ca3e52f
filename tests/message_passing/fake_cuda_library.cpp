// Stands in for libmezzo_cuda.so: its two tables with stamps that a test sets, and nothing else.
#include "mezzo/kernels/cuda_stamp.h"
#include "mezzo/message_passing/cuda_services.h"

namespace {

mezzo::CudaKernels fake_kernels;
mezzo::CudaServices fake_services;

}  // namespace

const mezzo::CudaKernels* mezzo_cuda_kernels() {
  return &fake_kernels;
}

const mezzo::CudaServices* mezzo_cuda_services() {
  return &fake_services;
}

extern "C" MEZZO_API void mezzo_set_fake_stamps(const mezzo::CudaStamp& of_kernels,
                                                const mezzo::CudaStamp& of_services) {
  fake_kernels.stamp = of_kernels;
  fake_services.stamp = of_services;
}
