#pragma once

#include <cstdint>
#include <string>

namespace mezzo::dist::detail {

/// The kinds of the library's errors, as they go from one process to another.
enum class FailureKind : std::uint8_t {
  kInvalidArgument,
  kIoError,
  kNumericError,
  kLogicError,
  kOther,
};

/// An exception in a form that can be sent.
struct Failure {
  FailureKind kind = FailureKind::kOther;
  std::string text = {};  ///< without libtorch's trace of calls
};

/// The exception being handled; to be called in a handler.
Failure current_failure();

/// Throws it in another process: of the same kind, kOther as Error, with the rank in front.
[[noreturn]] void raise_failure(const Failure& failure, std::int64_t rank);

}  // namespace mezzo::dist::detail
