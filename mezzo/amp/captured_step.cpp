#include "mezzo/amp/captured_step.h"

#include <mutex>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "mezzo/amp/capture_region.h"
#include "mezzo/core/error.h"
#include "mezzo/ops/dropout.h"
#include "mezzo/runtime/cuda_services.h"

namespace mezzo::amp {
namespace {

thread_local bool capturing = false;

struct CaptureRegion {
  CaptureRegion() { capturing = true; }
  ~CaptureRegion() { capturing = false; }
  CaptureRegion(const CaptureRegion&) = delete;
  CaptureRegion& operator=(const CaptureRegion&) = delete;
};

std::unique_ptr<DeviceGraph> graph_on(c10::Device device) {
  MEZZO_CHECK(device.is_cuda(), "CapturedStep: expected a CUDA device, got {}", device.str());
  const CudaServices& services = required_cuda_services("CapturedStep");
  if (!device.has_index()) device = c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice();
  return services.make_graph(device);
}

at::Tensor host_generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

bool detail::is_capturing() {
  return capturing;
}

CapturedStep::CapturedStep(std::function<at::Tensor()> step, const CapturedStepOptions& options)
    : CapturedStep(std::move(step), options, graph_on(options.device)) {}

CapturedStep::CapturedStep(std::function<at::Tensor()> step, const CapturedStepOptions& options,
                           std::unique_ptr<DeviceGraph> graph)
    : step_(std::move(step)), warm_up_left_(options.warm_up), graph_(std::move(graph)) {
  MEZZO_CHECK(step_ != nullptr, "CapturedStep: expected a function as the step, got an empty one");
  MEZZO_CHECK(graph_ != nullptr, "CapturedStep: expected a graph, got a null pointer");
  MEZZO_CHECK(options.warm_up >= 1, "CapturedStep: expected warm_up >= 1, got {}", options.warm_up);
}

CapturedStep::~CapturedStep() = default;
CapturedStep::CapturedStep(CapturedStep&&) noexcept = default;

CapturedStep& CapturedStep::operator=(CapturedStep&& other) noexcept {
  // Waits for running replays, which read memory of the step and its result.
  graph_ = std::move(other.graph_);
  step_ = std::move(other.step_);
  warm_up_left_ = other.warm_up_left_;
  captured_ = other.captured_;
  failed_ = other.failed_;
  result_ = std::move(other.result_);
  return *this;
}

at::Tensor CapturedStep::replay() {
  if (failed_) {
    mezzo::detail::raise<LogicError>(
        "CapturedStep::replay: the step could not be captured before; create a new CapturedStep");
  }
  if (!captured_ && warm_up_left_ > 0) {
    const mezzo::detail::DeviceDraws draws;  // warm-up and replays use the same generator
    graph_->warm_up([this] { result_ = step_(); });
    check_result();
    --warm_up_left_;
    return result_;
  }
  if (!captured_) capture();
  graph_->replay();
  return result_;
}

/// Clears autocast's cache at both ends: casts of a capture live in the graph's memory (never
/// computed if the capture fails), casts from outside do not, and neither may be used on the other
/// side.
class CastCacheGuard {
 public:
  CastCacheGuard() { at::autocast::clear_cache(); }
  ~CastCacheGuard() { at::autocast::clear_cache(); }
  CastCacheGuard(const CastCacheGuard&) = delete;
  CastCacheGuard& operator=(const CastCacheGuard&) = delete;
};

/// A result with an autograd graph would keep the graph's memory and gradient streams alive.
void CapturedStep::check_result() const {
  MEZZO_CHECK(!result_.defined() || !result_.requires_grad(),
              "CapturedStep: expected the step to return a detached tensor, got one with a graph");
}

void CapturedStep::capture() {
  failed_ = true;  // reset on success
  result_.reset();
  const at::Tensor generator_state = host_generator_state();
  try {
    const CastCacheGuard cache;
    const CaptureRegion region;
    const mezzo::detail::DeviceDraws draws;
    graph_->capture([this] { result_ = step_(); });
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    mezzo::detail::raise<InvalidArgument>(
        "CapturedStep: the step cannot be captured: {}; nothing in it may wait for the device",
        text.substr(0, text.find('\n')));
  }
  check_result();
  MEZZO_CHECK(
      at::equal(generator_state, host_generator_state()),
      "CapturedStep: expected a step without random numbers on the host, got one with: every "
      "replay would use the same numbers");
  failed_ = false;
  captured_ = true;
}

}  // namespace mezzo::amp
