#include "mezzo/runtime/cuda_services.h"

#include "mezzo/core/error.h"
#include "mezzo/runtime/cuda_library.h"

namespace mezzo {

const CudaServices* cuda_services() {
  return cuda_library().services;
}

const CudaServices& required_cuda_services(const char* operation) {
  const CudaLibrary& library = cuda_library();
  MEZZO_CHECK(library.services != nullptr,
              "{}: needs mezzo's CUDA library, which is not loaded: {}", operation,
              library.problem);
  return *library.services;
}

}  // namespace mezzo
