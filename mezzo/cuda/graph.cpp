#include <optional>

#include <ATen/cuda/CUDAEvent.h>
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
    graph_->capture_begin();
    try {
      work();
    } catch (...) {
      abandon();
      throw;
    }
    try {
      graph_->capture_end();
    } catch (...) {
      graph_.reset();
      throw;
    }
  }

  void replay() override { graph_->replay(); }

 private:
  /// Ends the capture of the stream, which reports the same error again.
  void abandon() {
    try {
      graph_->capture_end();
    } catch (...) {
    }
    graph_.reset();
  }

  c10::Device device_;
  CUDAStream stream_;
  std::optional<at::cuda::CUDAGraph> graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> make_graph(c10::Device device) {
  return std::make_unique<StreamGraph>(device);
}

}  // namespace mezzo::cuda
