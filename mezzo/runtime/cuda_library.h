#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mezzo/core/export.h"
#include "mezzo/kernels/cuda_kernels.h"

// The CUDA kernels are in a separate library, libmezzo_cuda.so, which is loaded together with this
// one if the machine has an NVIDIA driver. The same files work with and without a GPU.
// Internal to the library.

namespace mezzo {

struct CudaServices;  // cuda_services.h

/// Result of loading a library of CUDA kernels.
struct CudaLibrary {
  std::string path;  ///< empty if no file was tried
  const kernels::CudaKernels* kernels = nullptr;
  const CudaServices* services = nullptr;  ///< null if `kernels` is
  std::string problem;                     ///< why they are null, in one line; else empty
};

/// Loads the file, and libtorch's CUDA part with it. Rejects a file with another build id
/// (kBuildId). Does not throw.
MEZZO_API CudaLibrary open_cuda_library(const std::string& path);

/// The library that was loaded with this one: the file in MEZZO_CUDA_LIBRARY, else, if there is a
/// driver, the libmezzo_cuda.so next to this library. Does not query devices: a process that has
/// done so cannot fork workers.
MEZZO_API const CudaLibrary& cuda_library();

/// The kernels; null if none are loaded.
MEZZO_API const kernels::CudaKernels* cuda_kernels();

/// Whether this process sees a GPU, by the device files of the NVIDIA driver and
/// CUDA_VISIBLE_DEVICES. Does not initialize the driver, so the process can still fork workers, and
/// does not check that the driver works.
bool sees_gpu();

/// The same for `num_gpus` device files and the value of CUDA_VISIBLE_DEVICES; null: not set.
MEZZO_API bool sees_gpu(std::int64_t num_gpus, const char* visible_devices);

/// Why cuda_kernels() is null, in one line; empty if it is not.
MEZZO_API std::string cuda_library_problem();

/// Whether code for these architectures (CudaServices::architectures) runs on a GPU of this compute
/// capability: N-real on the same major version with at least that minor, N-virtual on N and above.
MEZZO_API bool runs_on(std::string_view architectures, int compute_capability);

/// Why the library cannot use CUDA device `index` (no driver, no kernels, no such device, or one
/// that they were not compiled for), in one line; empty if it can. Queries the driver.
MEZZO_API std::string cuda_device_problem(std::int64_t index);

/// The kernels. Throws InvalidArgument with the reason if they are not loaded.
MEZZO_API const kernels::CudaKernels& required_cuda_kernels();

}  // namespace mezzo
