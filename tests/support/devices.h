#pragma once

#include <cstdlib>
#include <map>
#include <string>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "mezzo/core/error.h"

/// The device that a run of the tests is about: MEZZO_TEST_DEVICE=cpu (where it is not set) or
/// cuda. Every tensor and graph that the helpers in support/ make lives there, and so do those that
/// tests make with on_device(); comparisons bring both sides to the CPU. What is about the CPU
/// itself says so (MEZZO_CPU_ONLY, CpuOnlySuite) and is skipped, aloud, elsewhere.
namespace mezzo::test {

/// Throws InvalidArgument where the variable names no device, or one that is not there.
inline at::Device test_device() {
  static const at::Device device = [] {
    const char* given = std::getenv("MEZZO_TEST_DEVICE");
    const std::string word = given == nullptr ? "cpu" : given;
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

/// The options of a tensor on the test device: of `dtype`, or of the dtype that the function that
/// takes them has by itself.
inline at::TensorOptions on_device(at::ScalarType dtype) {
  return at::TensorOptions(dtype).device(test_device());
}
inline at::TensorOptions on_device() {
  return at::TensorOptions().device(test_device());
}
inline at::Tensor on_device(const at::Tensor& tensor) {
  return tensor.to(test_device());
}

/// A whole suite that is about the CPU. One at namespace scope beside the suite:
///     const CpuOnlySuite kPipelineOnCpu("Pipeline", "worker threads of the CPU");
class CpuOnlySuite {
 public:
  CpuOnlySuite(const std::string& suite, const std::string& reason) {
    static Skipper* const skipper = [] {
      auto* made = new Skipper;  // GoogleTest deletes its listeners
      testing::UnitTest::GetInstance()->listeners().Append(made);
      return made;
    }();
    skipper->reasons.emplace(suite, reason);
  }

 private:
  struct Skipper : testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo& test) override {
      const auto found = reasons.find(test.test_suite_name());
      if (found != reasons.end() && !on_cpu()) GTEST_SKIP() << found->second;
    }
    std::map<std::string, std::string> reasons;
  };
};

}  // namespace mezzo::test

/// First in a test that is about the CPU.
#define MEZZO_CPU_ONLY(reason) \
  if (!::mezzo::test::on_cpu()) GTEST_SKIP() << (reason)
