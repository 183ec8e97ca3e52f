#pragma once

#include <string>

#include "mezzo/core/export.h"
#include "mezzo/kernels/cuda_kernels.h"

// The CUDA kernels are a library of their own, libmezzo_cuda.so, which is loaded with this one
// where the machine has an NVIDIA driver: the same files serve machines with and without a GPU.
// Internal to the library.

namespace mezzo {

struct CudaServices;  // cuda_services.h

/// What became of a library of CUDA kernels.
struct CudaLibrary {
  std::string path;  ///< empty if none was looked for
  const kernels::CudaKernels* kernels = nullptr;
  const CudaServices* services = nullptr;  ///< null if `kernels` is
  std::string problem;                     ///< why they are null, on one line; else empty
};

/// Loads the file, and libtorch's CUDA part with it. Refuses a file of another build id
/// (kBuildId). Does not throw.
MEZZO_API CudaLibrary open_cuda_library(const std::string& path);

/// The library that was loaded with this one: the file that MEZZO_CUDA_LIBRARY names, else, where
/// there is a driver, the libmezzo_cuda.so beside this library. Asks no driver for devices: a
/// process that has asked cannot fork workers.
MEZZO_API const CudaLibrary& cuda_library();

/// The kernels; null if none are loaded.
MEZZO_API const kernels::CudaKernels* cuda_kernels();

/// Why cuda_kernels() is null, on one line; empty if it is not.
MEZZO_API std::string cuda_library_problem();

/// The kernels. Throws InvalidArgument with the reason if none are loaded.
MEZZO_API const kernels::CudaKernels& required_cuda_kernels();

}  // namespace mezzo
