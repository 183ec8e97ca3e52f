#include "mezzo/runtime/backend_info.h"

#include "mezzo/core/error.h"
#include "mezzo/kernels/backend.h"
#include "mezzo/runtime/cuda_library.h"

namespace mezzo {

std::string describe_backends() {
  const std::string_view chosen = kernels::cpu_backend().name;
  std::string supported, lacking;
  for (const kernels::BackendStatus& one : kernels::cpu_backends()) {
    if (one.backend != nullptr) {
      supported += fmt::format("{}{}", supported.empty() ? "" : ", ", one.name);
    } else {
      lacking += fmt::format("; {} needs {}", one.name, one.missing);
    }
  }
  const CudaLibrary& cuda = cuda_library();
  return fmt::format("{} (found: {}{}); CUDA kernels: {}", chosen, supported, lacking,
                     cuda.kernels != nullptr ? cuda.path : fmt::format("none, {}", cuda.problem));
}

}  // namespace mezzo
