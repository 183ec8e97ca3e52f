#include "mezzo/predict/c_status.h"

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>

#include "mezzo/core/error.h"

namespace mezzo::detail {
namespace {

thread_local std::string last_error;

mezzo_status fail(mezzo_status status, std::string_view text) noexcept {
  try {
    last_error.assign(text.substr(0, text.find('\n')));
  } catch (...) {
    last_error.clear();
  }
  return status;
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
    return fail(MEZZO_OUT_OF_MEMORY, "out of memory");
  } catch (const c10::Error& error) {
    const std::string_view text = error.what_without_backtrace();
    const bool of_memory = text.find("can't allocate memory") != std::string_view::npos;
    return fail(of_memory ? MEZZO_OUT_OF_MEMORY : MEZZO_INTERNAL_ERROR, text);
  } catch (const std::exception& error) {
    return fail(MEZZO_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail(MEZZO_INTERNAL_ERROR, "an exception that is no std::exception");
  }
}

}  // namespace mezzo::detail

const char* mezzo_last_error(void) {
  return mezzo::detail::last_error.c_str();
}
