#include "mezzo/predict/status.h"

#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>

#include "mezzo/core/error.h"

namespace mezzo::detail {
namespace {

constexpr std::string_view kOutOfMemory = "out of memory";

thread_local std::string last_error;

mezzo_status fail(mezzo_status status, std::string_view text,
                  std::string_view requested = {}) noexcept {
  try {
    last_error.assign(text.substr(0, text.find('\n')));
    if (!requested.empty()) last_error.append(": ").append(requested).append(" were requested");
  } catch (...) {
    last_error.clear();
  }
  return status;
}

/// Of an error that is not this library's, which may be libtorch's for exhausted memory.
mezzo_status fail_inside(std::string_view text) noexcept {
  if (text.find("can't allocate memory") == std::string_view::npos) {
    return fail(MEZZO_INTERNAL_ERROR, text);
  }
  constexpr std::string_view kBefore = "tried to allocate ";
  const std::size_t at = text.find(kBefore);
  const std::string_view amount =
      at == std::string_view::npos ? std::string_view() : text.substr(at + kBefore.size());
  return fail(MEZZO_OUT_OF_MEMORY, kOutOfMemory, amount.substr(0, amount.find('.')));
}

}  // namespace

mezzo_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const InvalidArgument& error) {
    return fail(MEZZO_INVALID_ARGUMENT, error.what());
  } catch (const IoError& error) {
    return fail(MEZZO_IO_ERROR, error.what());
  } catch (const NumericError& error) {
    return fail(MEZZO_NUMERIC_ERROR, error.what());
  } catch (const std::bad_alloc&) {
    return fail(MEZZO_OUT_OF_MEMORY, kOutOfMemory);
  } catch (const c10::Error& error) {
    return fail_inside(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fail_inside(error.what());
  } catch (...) {
    return fail(MEZZO_INTERNAL_ERROR, "an exception that is no std::exception");
  }
}

}  // namespace mezzo::detail

const char* mezzo_last_error(void) {
  return mezzo::detail::last_error.c_str();
}
