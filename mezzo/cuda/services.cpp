#include "mezzo/cuda/services.h"

const mezzo::CudaServices* mezzo_cuda_services() {
  static const mezzo::CudaServices services{.stamp = mezzo::cuda_services_stamp(),
                                            .make_graph = mezzo::cuda::make_graph,
                                            .make_nccl = mezzo::cuda::kMakeNccl};
  return &services;
}
