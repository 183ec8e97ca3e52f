#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "mezzo/core/export.h"

namespace mezzo::dist::detail {

/// The library's error classes, as sent between processes.
enum class FailureKind : std::uint8_t {
  kInvalidArgument,
  kIoError,
  kNumericError,
  kLogicError,
  kOther,
};

/// An exception in serializable form.
struct Failure {
  FailureKind kind = FailureKind::kOther;
  std::string text = {};  ///< without libtorch's stack trace
};

/// Describes the current exception; call it in a catch handler.
Failure current_failure();

/// Rethrows a failure of `rank`: same class (kOther as Error), rank as prefix of the message.
[[noreturn]] void raise_failure(const Failure& failure, std::int64_t rank);

/// Whether an exception that c10d threw at a store or in a collective was caused by another rank,
/// rather than by this one or by a lack of memory or threads.
MEZZO_API bool comes_from_another(const std::exception& error);

/// Records that this process fails because of another rank: a collective has failed.
/// Thread-safe.
MEZZO_API void note_failure_of_another() noexcept;
/// Clears the record: the error is this process's own.
MEZZO_API void forget_failure_of_another() noexcept;
/// Whether such a failure is recorded, also by raise_failure().
MEZZO_API bool has_failed_with_another() noexcept;

}  // namespace mezzo::dist::detail
