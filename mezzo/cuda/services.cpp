#include "mezzo/cuda/services.h"

const mezzo::CudaServices* mezzo_cuda_services() {
  static const mezzo::CudaServices services{.make_graph = mezzo::cuda::make_graph,
                                            .make_nccl = mezzo::cuda::kMakeNccl};
  return &services;
}

const char* mezzo_cuda_build_id() {
  return mezzo::kBuildId;
}
