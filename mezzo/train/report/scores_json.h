#pragma once

#include <string>

#include "mezzo/core/json.h"
#include "mezzo/train/report/report.h"

namespace mezzo {

/// {"train": {"accuracy": 0.5}, "val": ..., "test": ...} of this metric; null for a part without
/// nodes.
inline OrderedJson scores_to_json(const std::string& metric, const Scores& scores) {
  return {{"train", {{metric, json_number(scores.train)}}},
          {"val", {{metric, json_number(scores.val)}}},
          {"test", {{metric, json_number(scores.test)}}}};
}

}  // namespace mezzo
