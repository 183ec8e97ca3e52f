#include <tuple>

#include "mezzo/kernels/cuda/kernels.h"

const mezzo::CudaKernels* mezzo_cuda_kernels() {
  static constexpr mezzo::CudaKernels kTable = [] {
    mezzo::CudaKernels table;
    mezzo::for_each(mezzo::CudaKernelList{}, [&]<class Args>() {
      using Kernel = mezzo::cuda::Kernel<Args>;
      std::get<mezzo::CudaKernel<Args>>(table) = {&Kernel::workspace, &Kernel::run};
    });
    return table;
  }();
  return &kTable;
}
