#pragma once

#include "mezzo/core/export.h"
#include "mezzo/predict/mezzo_predictor.h"

/// Errors of the C interface. Internal to predict.
namespace mezzo::detail {

/// The status of the exception that is being handled; its first line becomes mezzo_last_error().
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
