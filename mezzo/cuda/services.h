#pragma once

#include "mezzo/runtime/cuda_services.h"

// Functions for the table in services.cpp; see CudaServices.

namespace mezzo::cuda {

std::unique_ptr<DeviceGraph> make_graph(c10::Device device);

/// Null if NCCL's header was missing at build time.
extern decltype(CudaServices::make_nccl) const kMakeNccl;

}  // namespace mezzo::cuda
