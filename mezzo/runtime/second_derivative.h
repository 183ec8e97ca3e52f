#pragma once

#include <ATen/core/grad_mode.h>

#include "mezzo/core/error.h"

namespace mezzo {

/// For a backward that has no gradient of its own: throws InvalidArgument, which `what` opens,
/// where it runs with create_graph.
inline void refuse_second_derivative(const char* what) {
  MEZZO_CHECK(!at::GradMode::is_enabled(),
              "{}: second derivatives are not available (backward ran with create_graph)", what);
}

}  // namespace mezzo
