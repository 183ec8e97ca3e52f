#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// The state of a GradScaler: the five fields of Python's torch.amp.GradScaler.state_dict(), with
/// `_growth_tracker` for growth_tracker, then the state of Mezzo's policies, which Python's
/// load_state_dict ignores. All zero for a disabled scaler.
struct ScalerState {
  double scale = 0.0;
  double growth_factor = 0.0;
  double backoff_factor = 0.0;
  std::int64_t growth_interval = 0;
  std::int64_t growth_tracker = 0;  ///< clean updates since the scale last changed

  std::int64_t hysteresis_spent = 0;         ///< overflows ignored since the refill
  std::int64_t updates_since_rescale = 0;    ///< counted only under a tolerance or hysteresis
  std::int64_t overflows_since_rescale = 0;  ///< updates with overflow
  std::int64_t skipped_steps = 0;            ///< total of all optimizers
  std::vector<double> rule = {};             ///< state of a custom policy

  bool operator==(const ScalerState&) const = default;

  /// Whether it is the state of a disabled scaler.
  bool empty() const { return *this == ScalerState{}; }
};

/// Writes the state as one JSON object, which Python's `scaler.load_state_dict(json.load(file))`
/// reads too. Numbers are restored bit for bit. An empty state is `{}`, as in Python.
MEZZO_API std::string to_json(const ScalerState& state);

/// Reads the output of to_json() or Python's `json.dumps(scaler.state_dict())`; fields that Python
/// lacks are optional, unknown fields are ignored. Throws IoError for text that is not a JSON
/// object, and for a field that is missing or has the wrong type.
MEZZO_API ScalerState scaler_state_from_json(std::string_view text);

}  // namespace mezzo::amp
