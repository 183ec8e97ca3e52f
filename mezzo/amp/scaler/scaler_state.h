#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/core/export.h"

namespace mezzo::amp {

/// The state of a GradScaler: the five fields of Python's torch.amp.GradScaler.state_dict(), in
/// which growth_tracker is called `_growth_tracker`, then what policies beyond Python's remember,
/// which Python's load_state_dict passes over. All zero for a disabled scaler.
struct ScalerState {
  double scale = 0.0;
  double growth_factor = 0.0;
  double backoff_factor = 0.0;
  std::int64_t growth_interval = 0;
  std::int64_t growth_tracker = 0;  ///< clean updates since the scale last moved

  std::int64_t hysteresis_spent = 0;         ///< overflows let pass since the refill
  std::int64_t updates_since_rescale = 0;    ///< counted under a tolerance or hysteresis only
  std::int64_t overflows_since_rescale = 0;  ///< of these
  std::int64_t skipped_steps = 0;            ///< since the beginning, of all optimizers
  std::vector<double> rule = {};             ///< of a policy of the user's own

  bool operator==(const ScalerState&) const = default;

  /// Whether it came from a disabled scaler.
  bool empty() const { return *this == ScalerState{}; }
};

/// The state as one JSON object, the form that both languages read: Python's
/// `scaler.load_state_dict(json.load(file))` takes it. Numbers come back bit for bit. An empty
/// state is `{}`, as in Python.
MEZZO_API std::string to_json(const ScalerState& state);

/// Reads what to_json() or Python's `json.dumps(scaler.state_dict())` wrote; fields beyond Python's
/// may be missing, and unknown ones are passed over. Throws IoError for text that is no JSON
/// object, and for a field that is missing or of another type.
MEZZO_API ScalerState scaler_state_from_json(std::string_view text);

}  // namespace mezzo::amp
