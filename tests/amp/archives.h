#pragma once

#include <sstream>

#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "mezzo/amp/optim/mixed_precision_optimizer.h"

namespace mezzo::test {

/// Saves `from` and loads it into `to`.
inline void transfer(const amp::MixedPrecisionOptimizer& from, amp::MixedPrecisionOptimizer& to) {
  torch::serialize::OutputArchive written;
  from.save(written);
  std::stringstream stream;
  written.save_to(stream);
  torch::serialize::InputArchive read;
  read.load_from(stream);
  to.load(read);
}

}  // namespace mezzo::test
