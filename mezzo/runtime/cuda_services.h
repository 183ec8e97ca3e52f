#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include "mezzo/core/export.h"

namespace c10d {
class Backend;  // their headers cost seconds
class Store;
}  // namespace c10d

namespace mezzo {

/// Work that a device repeats without a new launch of each part. It has a stream of its own.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  /// Calls `work` with the graph's stream as the current one. What the caller's stream holds is
  /// done before the work, and what it is given later after it. Does not synchronise.
  virtual void warm_up(const std::function<void()>& work) = 0;

  /// Calls `work` and keeps what it queues on the device, undone. Synchronises before. What is
  /// thrown, by the work or because something in it cannot be kept, leaves no graph.
  virtual void capture(const std::function<void()>& work) = 0;

  /// Queues what was kept on the caller's current stream. Does not synchronise.
  virtual void replay() = 0;
};

/// The same for libmezzo.so and libmezzo_cuda.so of one package; generated (cmake/build_id.cmake).
extern const char* const kBuildId;

/// What libmezzo.so, which links no library of CUDA, asks of libmezzo_cuda.so beside its kernels.
struct CudaServices {
  /// For a CUDA device with an index.
  std::unique_ptr<DeviceGraph> (*make_graph)(c10::Device device) = nullptr;

  /// NCCL on the current device; connects at the first collective. Null if the library was
  /// built without NCCL's header.
  c10::intrusive_ptr<c10d::Backend> (*make_nccl)(const c10::intrusive_ptr<c10d::Store>& store,
                                                 std::int64_t rank, std::int64_t world_size,
                                                 std::chrono::milliseconds timeout) = nullptr;
};

/// The services of the CUDA library; null if it is not loaded.
MEZZO_API const CudaServices* cuda_services();

/// The services. Throws InvalidArgument, which begins with `operation`, where the library is not
/// loaded, and says why.
MEZZO_API const CudaServices& required_cuda_services(const char* operation);

}  // namespace mezzo

/// The table of the CUDA library; found by name when the library is loaded.
extern "C" MEZZO_API const mezzo::CudaServices* mezzo_cuda_services();

/// The kBuildId of the CUDA library; found by name too.
extern "C" MEZZO_API const char* mezzo_cuda_build_id();
