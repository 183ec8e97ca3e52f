#include "mezzo/runtime/cuda_library.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <ranges>
#include <string_view>
#include <system_error>

#include <ATen/Context.h>
#include <dlfcn.h>
#include <unistd.h>

#include "mezzo/core/environment.h"
#include "mezzo/core/error.h"
#include "mezzo/core/log.h"
#include "mezzo/runtime/cuda_services.h"

namespace mezzo {

namespace {

constexpr const char* kCudaLibraryName = "libmezzo_cuda.so";
constexpr const char* kKernelsName = "mezzo_cuda_kernels";
constexpr const char* kServicesName = "mezzo_cuda_services";
constexpr const char* kBuildIdName = "mezzo_cuda_build_id";

std::string loader_text() {
  const char* const text = ::dlerror();
  return text == nullptr ? "unknown error" : text;
}

/// Path of the kernel library in the folder of this library.
std::string path_beside_this_library() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&open_cuda_library), &info) == 0 ||
      info.dli_fname == nullptr) {
    return kCudaLibraryName;
  }
  const std::string here = info.dli_fname;
  const std::size_t slash = here.rfind('/');
  return slash == std::string::npos ? kCudaLibraryName
                                    : here.substr(0, slash + 1) + kCudaLibraryName;
}

/// Calls the function `name` of the file; null if it is missing.
template <class T>
const T* call(void* file, const char* name) {
  const auto function = reinterpret_cast<const T* (*)()>(::dlsym(file, name));
  return function == nullptr ? nullptr : function();
}

CudaLibrary find_cuda_library() {
  const std::string named = environment_text("MEZZO_CUDA_LIBRARY");
  if (!named.empty()) return open_cuda_library(named);
  // Loaded, not initialized (see the header); stays loaded, because the kernels need it.
  if (::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) {
    return {.path = {},
            .kernels = nullptr,
            .services = nullptr,
            .problem = "no NVIDIA driver: " + loader_text()};
  }
  return open_cuda_library(path_beside_this_library());
}

/// Number of device files of GPUs that this process may open.
std::int64_t count_device_files() {
  const auto is_gpu = [](const std::filesystem::directory_entry& entry) {
    const std::string path = entry.path();
    const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
    const bool of_linux = name.starts_with("nvidia") && name.size() > 6 &&
                          name.find_first_not_of("0123456789", 6) == name.npos;
    const bool of_windows = name == "dxg";  // all GPUs, in the Windows Subsystem for Linux
    return (of_linux || of_windows) && ::access(path.c_str(), R_OK | W_OK) == 0;
  };
  std::error_code error;
  const std::filesystem::directory_iterator devices("/dev", error);
  return std::count_if(begin(devices), end(devices), is_gpu);
}

}  // namespace

bool sees_gpu() {
  return sees_gpu(count_device_files(), std::getenv("CUDA_VISIBLE_DEVICES"));
}

bool sees_gpu(std::int64_t num_gpus, const char* visible_devices) {
  if (visible_devices == nullptr || num_gpus == 0) return num_gpus > 0;
  // CUDA shows the GPUs of the list up to the first entry that is invalid.
  const std::string_view list = visible_devices;
  const std::string_view first = list.substr(0, list.find(','));
  if (first.starts_with("GPU-") || first.starts_with("MIG-")) return true;
  std::int64_t index = 0;
  const auto [stop, error] = std::from_chars(first.data(), first.data() + first.size(), index);
  return error == std::errc() && index >= 0 && index < num_gpus;
}

CudaLibrary open_cuda_library(const std::string& path) {
  CudaLibrary library{.path = path, .kernels = nullptr, .services = nullptr, .problem = {}};
  void* const file = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (file == nullptr) {
    const std::string why = loader_text();  // starts with the path or with a missing library
    library.problem =
        fmt::format("cannot load {}", why.starts_with(path) ? why : path + ": " + why);
    return library;
  }
  const char* const build_id = call<char>(file, kBuildIdName);
  if (build_id == nullptr) {
    library.problem = fmt::format("{} holds no CUDA kernels of mezzo ({})", path, kBuildIdName);
    ::dlclose(file);
    return library;
  }
  if (std::string_view(build_id) != kBuildId) {
    // Stays open: libtorch has registered its CUDA part, which was loaded with it.
    library.problem = fmt::format(
        "{} is of build {}, and this library of build {}: use two files "
        "of one package",
        path, build_id, kBuildId);
    return library;
  }
  library.kernels = call<kernels::CudaKernels>(file, kKernelsName);
  library.services = call<CudaServices>(file, kServicesName);
  return library;
}

static const CudaLibrary& found_cuda_library() {
  static const CudaLibrary library = find_cuda_library();
  return library;
}

// Loads at startup, not at first use: once queried, libtorch remembers that it has no CUDA part.
[[maybe_unused]] static const bool kCudaLibraryLoaded = found_cuda_library().kernels != nullptr;

const CudaLibrary& cuda_library() {
  const CudaLibrary& library = found_cuda_library();
  [[maybe_unused]] static const bool told = [&] {  // not at load: a program may set MEZZO_LOG first
    detail::log("dispatch", library.kernels != nullptr ? "cuda kernels of " + library.path
                                                       : "no cuda kernels: " + library.problem);
    return true;
  }();
  return library;
}

const kernels::CudaKernels* cuda_kernels() {
  return cuda_library().kernels;
}

std::string cuda_library_problem() {
  return cuda_library().problem;
}

bool runs_on(std::string_view architectures, int compute_capability) {
  for (const auto part : std::views::split(architectures, ',')) {
    const std::string_view one(part.begin(), part.end());
    int number = 0;
    std::from_chars(one.data(), one.data() + one.size(), number);
    const bool is_older = number <= compute_capability;
    const bool is_virtual = one.ends_with("-virtual");
    if (is_older && (is_virtual || number / 10 == compute_capability / 10)) return true;
  }
  return false;
}

std::string cuda_device_problem(std::int64_t index) {
  const CudaLibrary& library = cuda_library();
  if (library.kernels == nullptr) return "the CUDA kernels are not loaded: " + library.problem;
  if (!at::hasCUDA()) return "libtorch sees no CUDA device";
  const auto count = static_cast<std::int64_t>(at::getNumGPUs());
  if (index >= count) return fmt::format("the number of CUDA devices is {}", count);
  const CudaServices& services = *library.services;
  const int capability = services.compute_capability(static_cast<c10::DeviceIndex>(index));
  if (runs_on(services.architectures, capability)) return {};
  return fmt::format("the GPU has compute capability {}.{}, the CUDA kernels were compiled for {}",
                     capability / 10, capability % 10, services.architectures);
}

const kernels::CudaKernels& required_cuda_kernels() {
  const CudaLibrary& library = cuda_library();
  MEZZO_CHECK(library.kernels != nullptr, "mezzo's CUDA kernels are not loaded: {}",
              library.problem);
  return *library.kernels;
}

}  // namespace mezzo
