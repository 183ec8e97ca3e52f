#pragma once

#include <ATen/core/grad_mode.h>

#include "mezzo/core/error.h"

namespace mezzo {

/// For a backward without second derivatives: throws InvalidArgument with the prefix `what` if it
/// runs with create_graph.
inline void refuse_second_derivative(const char* what) {
  MEZZO_CHECK(!at::GradMode::is_enabled(),
              "{}: second derivatives are not available (backward ran with create_graph)", what);
}

}  // namespace mezzo
