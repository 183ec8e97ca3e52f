#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// Base class of the errors that the library throws. The message is one line: the operation, the
/// argument, what was expected and what it got.
class MEZZO_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An error of the caller: a wrong shape, dtype, device, id, name or option. Exit code 2.
class MEZZO_API InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A file is missing, truncated, corrupt or cannot be written. Exit code 3.
class MEZZO_API IoError : public Error {
 public:
  using Error::Error;
};

/// Gradients, scores or outputs of a model are inf or NaN, or training diverged at any loss scale.
/// Exit code 4.
class MEZZO_API NumericError : public Error {
 public:
  using Error::Error;
};

/// Calls in the wrong order, or a bug of the library. Exit code 70.
class MEZZO_API LogicError : public Error {
 public:
  using Error::Error;
};

namespace detail {

template <class Kind, class... Args>
[[noreturn]] void raise(fmt::format_string<Args...> text, Args&&... args) {
  throw Kind(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace detail
}  // namespace mezzo

/// Throws mezzo::InvalidArgument with a formatted message unless `condition` holds.
#define MEZZO_CHECK(condition, ...)                                  \
  do {                                                               \
    if (!(condition)) [[unlikely]] {                                 \
      ::mezzo::detail::raise<::mezzo::InvalidArgument>(__VA_ARGS__); \
    }                                                                \
  } while (false)

/// Throws mezzo::LogicError unless `condition` holds; compiled in debug builds only.
#ifdef NDEBUG
#define MEZZO_DCHECK(condition) static_cast<void>(0)
#else
#define MEZZO_DCHECK(condition)                                                                 \
  do {                                                                                          \
    if (!(condition)) [[unlikely]] {                                                            \
      ::mezzo::detail::raise<::mezzo::LogicError>("{}:{}: {}", __FILE__, __LINE__, #condition); \
    }                                                                                           \
  } while (false)
#endif
