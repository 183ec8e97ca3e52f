#include "mezzo/message_passing/cuda_services.h"

#include <dlfcn.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/cuda_library.h"

namespace mezzo {
namespace {

const CudaServices* find_services() {
  const CudaLibrary& library = cuda_library();
  if (library.kernels == nullptr) return nullptr;
  void* const file = ::dlopen(library.path.c_str(), RTLD_NOLOAD | RTLD_LAZY);
  if (file == nullptr) return nullptr;
  const auto table =
      reinterpret_cast<decltype(&mezzo_cuda_services)>(::dlsym(file, "mezzo_cuda_services"));
  return table != nullptr ? table() : nullptr;
}

}  // namespace

const CudaServices* cuda_services() {
  static const CudaServices* const services = find_services();
  return services;
}

const CudaServices& required_cuda_services(const char* operation) {
  const CudaServices* services = cuda_services();
  const std::string problem = cuda_library_problem();
  MEZZO_CHECK(services != nullptr, "{}: needs mezzo's CUDA library, which is not loaded: {}",
              operation,
              problem.empty() ? cuda_library().path + " is of another version" : problem);
  return *services;
}

}  // namespace mezzo
