#pragma once

#include <cstdlib>
#include <map>
#include <string>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "mezzo/core/error.h"

/// The device under test: MEZZO_TEST_DEVICE=cpu (default) or cuda. The helpers in support/ and
/// on_device() create tensors and graphs there; comparisons copy both sides to the CPU. CPU-only
/// tests use MEZZO_CPU_ONLY or CpuOnlySuite and are reported as skipped on other devices.
namespace mezzo::test {

/// Throws InvalidArgument if the variable is invalid or the device is unavailable.
inline at::Device test_device() {
  static const at::Device device = [] {
    const char* variable = std::getenv("MEZZO_TEST_DEVICE");
    const std::string word = variable == nullptr ? "cpu" : variable;
    MEZZO_CHECK(word == "cpu" || word == "cuda",
                "MEZZO_TEST_DEVICE: expected cpu or cuda, got '{}'", word);
    MEZZO_CHECK(word == "cpu" || at::hasCUDA(), "MEZZO_TEST_DEVICE=cuda: there is no CUDA device");
    return word == "cpu" ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
  }();
  return device;
}

inline bool on_cpu() {
  return test_device().is_cpu();
}

/// The options of a tensor on the test device: with `dtype`, or the default dtype of the called
/// function.
inline at::TensorOptions on_device(at::ScalarType dtype) {
  return at::TensorOptions(dtype).device(test_device());
}
inline at::TensorOptions on_device() {
  return at::TensorOptions().device(test_device());
}
inline at::Tensor on_device(const at::Tensor& tensor) {
  return tensor.to(test_device());
}

/// Marks a suite as CPU-only. Define one at namespace scope beside the suite:
///     const CpuOnlySuite kPipelineOnCpu("Pipeline", "worker threads of the CPU");
class CpuOnlySuite {
 public:
  CpuOnlySuite(const std::string& suite, const std::string& reason) {
    static Skipper* const skipper = [] {
      auto* listener = new Skipper;  // GoogleTest deletes its listeners
      testing::UnitTest::GetInstance()->listeners().Append(listener);
      return listener;
    }();
    skipper->reasons.emplace(suite, reason);
  }

 private:
  struct Skipper : testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo& test) override {
      const auto reason = reasons.find(test.test_suite_name());
      if (reason != reasons.end() && !on_cpu()) GTEST_SKIP() << reason->second;
    }
    std::map<std::string, std::string> reasons;
  };
};

}  // namespace mezzo::test

/// The first statement of a CPU-only test.
#define MEZZO_CPU_ONLY(reason) \
  if (!::mezzo::test::on_cpu()) GTEST_SKIP() << (reason)
