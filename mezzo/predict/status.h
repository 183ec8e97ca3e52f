#pragma once

#include "mezzo/core/export.h"
#include "mezzo/predict/mezzo_predictor.h"

/// The errors of the C interface and of the command. Internal to predict and cli.
namespace mezzo::detail {

/// The status of the exception that is being handled. Its first line, shortened if it reports
/// exhausted memory, becomes mezzo_last_error().
MEZZO_API mezzo_status status_of_exception() noexcept;

/// Calls call(), and turns what it throws into a status.
template <class Call>
mezzo_status guarded(const Call& call) noexcept {
  try {
    call();
    return MEZZO_OK;
  } catch (...) {
    return status_of_exception();
  }
}

}  // namespace mezzo::detail
