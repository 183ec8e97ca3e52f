#include <tuple>

#include "mezzo/kernels/cuda/kernels.h"

const mezzo::kernels::CudaKernels* mezzo_cuda_kernels() {
  static constexpr mezzo::kernels::CudaKernels kTable = [] {
    mezzo::kernels::CudaKernels table;
    mezzo::detail::for_each(mezzo::kernels::CudaKernelList{}, [&]<class Args>() {
      using Kernel = mezzo::kernels::cuda::Kernel<Args>;
      std::get<mezzo::kernels::CudaKernel<Args>>(table) = {&Kernel::workspace, &Kernel::run};
    });
    return table;
  }();
  return &kTable;
}
