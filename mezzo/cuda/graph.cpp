#include <optional>
#include <utility>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "mezzo/cuda/services.h"

namespace mezzo::cuda {
namespace {

using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::CUDAStreamGuard;

/// Makes future work of `later` wait for the current work of `earlier`.
void order(const CUDAStream& earlier, const CUDAStream& later) {
  at::cuda::CUDAEvent event;
  event.record(earlier);
  event.block(later);
}

/// libtorch 2.11 ends its allocators' pools and its generators' capture only after CUDA has
/// accepted the end of the capture (2.12: before). After a refusal they would stay in capture mode
/// for the rest of the process: no random draw, no emptyCache(), no second capture.
class RecoverableGraph : public at::cuda::CUDAGraph {
 public:
  /// Ends a failed capture on the current stream, and what capture_end() has not ended. The
  /// destructor releases the pool.
  void abandon() noexcept {
    try {
      capture_end();  // after a refusal it reports the error again
    } catch (...) {
    }
    if (std::exchange(capture_ended_, true)) return;  // only the instantiation failed
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_);
      at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(mempool_id_);
    } catch (...) {  // capture_begin() failed before it started them
      capture_ended_ = false;
    }
    for (auto& [state, increment] : captured_generator_states_) state->capturing_ = false;
  }
};

class StreamGraph : public DeviceGraph {
 public:
  explicit StreamGraph(c10::Device device)
      : device_(device),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  ~StreamGraph() override {
    try {  // pending replays use the graph's memory
      const CUDAGuard guard(device_);
      c10::cuda::device_synchronize();
    } catch (...) {
    }
  }

  void warm_up(const std::function<void()>& work) override {
    const CUDAGuard guard(device_);
    const CUDAStream callers = c10::cuda::getCurrentCUDAStream();
    order(callers, stream_);
    {
      const CUDAStreamGuard own(stream_);
      work();
    }
    order(stream_, callers);
  }

  void capture(const std::function<void()>& work) override {
    const CUDAGuard guard(device_);
    c10::cuda::device_synchronize();
    // The graph uses its own pool, which cannot reuse blocks cached for other streams.
    c10::cuda::CUDACachingAllocator::emptyCache();
    graph_.emplace();
    const CUDAStreamGuard own(stream_);
    try {
      // Loaders' threads may go on: only this thread's unsafe calls are refused.
      graph_->capture_begin(/*pool=*/{0, 0}, cudaStreamCaptureModeThreadLocal);
      work();
      graph_->capture_end();
    } catch (...) {
      graph_->abandon();
      graph_.reset();
      throw;
    }
  }

  void replay() override { graph_->replay(); }

 private:
  c10::Device device_;
  CUDAStream stream_;
  std::optional<RecoverableGraph> graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> make_graph(c10::Device device) {
  return std::make_unique<StreamGraph>(device);
}

}  // namespace mezzo::cuda
