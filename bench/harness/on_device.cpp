#include "bench/harness/on_device.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/memory.h"

#include "bench/harness/program.h"

namespace mezzo::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// A result of ours that is further off is a fault and no rounding, in any precision.
constexpr double kWrong = 0.1;

double error_of(const Tensors& results, const std::vector<Expected>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor& value = expected[i].value;
    const at::Tensor got = results[i].detach().slice(0, 0, results[i].size(0), expected[i].stride);
    const double difference = (got.to(at::kFloat) - value).abs().max().item<double>();
    const double largest = value.abs().max().item<double>();
    worst = std::max(worst, largest > 0 ? difference / largest : difference);
  }
  return worst;
}

void warm_up(const Candidate& candidate, std::int64_t count, std::vector<Expected>& expected,
             Measurement& measured) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensors results = candidate.run();
    if (i > 0) continue;
    if (expected.empty()) {
      for (const at::Tensor& result : results) {
        expected.push_back({result.detach().to(at::kFloat).clone()});
      }
      continue;
    }
    measured.error = error_of(results, expected);
    if (candidate.is_mezzo && !(measured.error <= kWrong)) {
      measured.skipped =
          fmt::format("FAILED: wrong by {:.2g} of the largest element", measured.error);
      return;
    }
  }
  synchronize();
}

/// The other candidates go on.
void note_failure(const Candidate& candidate, const std::string& text, Measurement& measured) {
  measured.skipped = (candidate.is_mezzo ? "FAILED: " : "") + text.substr(0, text.find('\n'));
}

Measurement begin(const Candidate& candidate, std::int64_t warm_ups,
                  std::vector<Expected>& expected) {
  Measurement measured{.name = candidate.name,
                       .is_mezzo = candidate.is_mezzo,
                       .precision = candidate.precision,
                       .milliseconds = {},
                       .moved_bytes = candidate.moved_bytes,
                       .stages = {},
                       .skipped = candidate.refusal};
  if (!measured.skipped.empty()) return measured;
  try {
    warm_up(candidate, warm_ups, expected, measured);
  } catch (const c10::Error& error) {
    note_failure(candidate, error.what_without_backtrace(), measured);
  } catch (const Error& error) {  // of ours: a launch or a capture that CUDA refused
    note_failure(candidate, error.what(), measured);
  }
  return measured;
}

void time_once(const Candidate& candidate, std::int64_t repeats, Measurement& measured) {
  synchronize();
  reset_peak_memory(gpu());
  const std::int64_t before = current_memory_bytes(gpu());
  const Clock::time_point start = Clock::now();
  for (std::int64_t i = 0; i < repeats; ++i) candidate.run();
  synchronize();
  const std::chrono::duration<double, std::milli> passed = Clock::now() - start;
  measured.milliseconds.push_back(passed.count() / static_cast<double>(repeats));
  measured.peak_bytes = peak_memory_bytes(gpu()) - before;
}

/// Edges of an R-MAT graph of 2^levels nodes: each level puts an edge into a quarter of the matrix.
std::pair<at::Tensor, at::Tensor> rmat_edges(std::int64_t levels, std::int64_t num_edges) {
  constexpr double kA = 0.57, kB = 0.19, kC = 0.19;
  const at::TensorOptions options = at::TensorOptions(at::kLong).device(gpu());
  at::Tensor src = at::zeros({num_edges}, options), dst = at::zeros({num_edges}, options);
  for (std::int64_t level = 0; level < levels; ++level) {
    const at::Tensor draw = at::rand({num_edges}, options.dtype(at::kFloat));
    const at::Tensor lower = draw >= kA + kB;
    const at::Tensor right =
        (draw >= kA).logical_and(draw < kA + kB).logical_or(draw >= kA + kB + kC);
    src.mul_(2).add_(lower);
    dst.mul_(2).add_(right);
  }
  return {src, dst};
}

}  // namespace

at::Device gpu() {
  static const at::Device device = [] {
    const at::Device found = default_device();
    MEZZO_CHECK(found.is_cuda(), "expected a CUDA device with mezzo's kernels, found none");
    return found;
  }();
  return device;
}

void synchronize() {
  c10::impl::getDeviceGuardImpl(gpu().type())->synchronizeDevice(gpu().index());
}

Topology rmat_on_device(const GraphSize& size) {
  at::manual_seed(0);
  const auto levels = static_cast<std::int64_t>(std::ceil(std::log2(size.num_nodes)));
  const auto [src, dst] = rmat_edges(levels, size.num_edges);
  const at::Tensor order = at::randperm(size.num_nodes, at::TensorOptions(at::kLong).device(gpu()));
  const auto renamed = [&](const at::Tensor& ids) {
    return order.index_select(0, ids.remainder(size.num_nodes));
  };
  const Topology made =
      Topology::from_coo(renamed(src), renamed(dst), size.num_nodes, size.num_nodes);
  made.csc();
  made.csr();
  return made;
}

Outcome measure_on_device(const Plan& plan, const DeviceRounds& options) {
  Outcome outcome{.work = plan.work, .width = plan.width, .measurements = {}, .skipped = {}};
  at::manual_seed(0);
  try {
    Comparison comparison = plan.make();
    for (const Candidate& candidate : comparison.candidates) {
      if (interrupted()) break;
      outcome.measurements.push_back(begin(candidate, options.warm_ups, comparison.expected));
    }
    for (std::int64_t round = 0; round < options.rounds && !interrupted(); ++round) {
      for (std::size_t i = 0; i < comparison.candidates.size(); ++i) {
        Measurement& measured = outcome.measurements[i];
        if (measured.skipped.empty()) {
          time_once(comparison.candidates[i], options.repeats, measured);
        }
      }
    }
  } catch (const c10::OutOfMemoryError&) {
    outcome.skipped = "the operands do not fit";
    outcome.measurements.clear();
  }
  return outcome;
}

}  // namespace mezzo::bench
