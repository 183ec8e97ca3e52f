#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "mezzo/core/export.h"

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

/// Whether what c10d threw at a store or in a collective tells of another rank, not of what this
/// one did, or has no memory or threads for.
MEZZO_API bool comes_from_another(const std::exception& error);

/// Notes that this process throws an error because of another one: a collective has failed. From
/// any thread.
MEZZO_API void note_failure_of_another() noexcept;
/// Takes it back: what this process throws is an error of its own after all.
MEZZO_API void forget_failure_of_another() noexcept;
/// Whether it has been noted, by raise_failure() too.
MEZZO_API bool has_failed_with_another() noexcept;

}  // namespace mezzo::dist::detail
