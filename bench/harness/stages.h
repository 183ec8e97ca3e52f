#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "bench/harness/measure.h"

namespace mezzo::bench {

/// Milliseconds since construction or the last call.
class LapClock {
 public:
  double lap();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
};

/// Appends a time to the stage `name`; a new stage goes at the end.
void note(Stages& stages, const std::string& name, double milliseconds);

/// Milliseconds spent in this library's operations.
struct OperationTimes {
  double first_product = 0;  ///< of the first dense product, or product with sparse features
  double products = 0;       ///< of the others
  double aggregation = 0;    ///< of sums over neighbours, and of further sparse products
  double attention = 0;      ///< of scores and softmax, or of attention in one operation
  double sum() const { return first_product + products + aggregation + attention; }
};

/// Adds up the times of this library's operations that the calling thread calls, by libtorch's
/// record of functions. Nested operations count for the outermost. Only one instance at a time.
class OperationRecorder {
 public:
  /// sparse_input: the first sum over a structure is the product with sparse features.
  explicit OperationRecorder(bool sparse_input);
  ~OperationRecorder();
  OperationRecorder(const OperationRecorder&) = delete;
  OperationRecorder& operator=(const OperationRecorder&) = delete;

  const OperationTimes& times() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mezzo::bench
