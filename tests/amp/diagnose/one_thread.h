#pragma once

#include <cstdlib>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace mezzo::test {

/// Tests on one thread, since their models are too small for more, and in 16 bits: what the CPU
/// policy measures differs between processes.
class OneThread : public testing::Test {
 protected:
  void SetUp() override {
    at::set_num_threads(1);
    setenv("MEZZO_CPU_POLICY", "16bit", /*overwrite=*/1);
  }
  void TearDown() override {
    at::set_num_threads(threads_);
    unsetenv("MEZZO_CPU_POLICY");
  }

 private:
  int threads_ = at::get_num_threads();
};

}  // namespace mezzo::test
