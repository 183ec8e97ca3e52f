#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include "mezzo/core/export.h"

namespace c10d {
class Backend;  // their headers are slow to compile
class Store;
}  // namespace c10d

namespace mezzo {

/// A CUDA graph: captures work once and replays it with one launch. Has its own stream.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  /// Calls `work` with the graph's stream as current stream. Runs after all work queued before on
  /// the caller's stream and before all work queued later. Does not synchronize.
  virtual void warm_up(const std::function<void()>& work) = 0;

  /// Calls `work` and captures its device operations without running them. Synchronizes first. If
  /// `work` throws or an operation cannot be captured, rethrows and leaves no graph.
  virtual void capture(const std::function<void()>& work) = 0;

  /// Queues the captured work on the caller's current stream. Does not synchronize.
  virtual void replay() = 0;
};

/// Equal for libmezzo.so and libmezzo_cuda.so of one package; generated (cmake/build_id.cmake).
extern const char* const kBuildId;

/// Functions of libmezzo_cuda.so, besides its kernels, for libmezzo.so, which does not link CUDA.
struct CudaServices {
  /// What the kernels were compiled for: "75-real,90-real,90-virtual" (MEZZO_CUDA_ARCHITECTURES).
  const char* architectures = "";

  /// The compute capability of a device: 90 for 9.0. Queries the driver.
  int (*compute_capability)(c10::DeviceIndex device) = nullptr;

  /// Requires a CUDA device with an index.
  std::unique_ptr<DeviceGraph> (*make_graph)(c10::Device device) = nullptr;

  /// Creates NCCL on the current device; connects at the first collective. Null if the library was
  /// built without NCCL's header.
  c10::intrusive_ptr<c10d::Backend> (*make_nccl)(const c10::intrusive_ptr<c10d::Store>& store,
                                                 std::int64_t rank, std::int64_t world_size,
                                                 std::chrono::milliseconds timeout) = nullptr;

  /// The PCI addresses of the GPUs that this process sees, which are different for different GPUs
  /// of a machine.
  std::vector<std::string> (*gpu_addresses)() = nullptr;
};

/// The services of the CUDA library; null if it is not loaded.
MEZZO_API const CudaServices* cuda_services();

/// The services. Throws InvalidArgument with the prefix `operation` and the reason if the library
/// is not loaded.
MEZZO_API const CudaServices& required_cuda_services(const char* operation);

}  // namespace mezzo

/// The table of the CUDA library; looked up by name after loading.
extern "C" MEZZO_API const mezzo::CudaServices* mezzo_cuda_services();

/// The kBuildId of the CUDA library; looked up by name too.
extern "C" MEZZO_API const char* mezzo_cuda_build_id();
