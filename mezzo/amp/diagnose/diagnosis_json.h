#pragma once

#include "mezzo/amp/diagnose/diagnosis_text.h"
#include "mezzo/core/json.h"

namespace mezzo::amp::detail {

/// The object of to_json(). describe: writes the settings.
OrderedJson diagnosis_json(const Diagnosis& diagnosis, DescribeSetting describe);

}  // namespace mezzo::amp::detail
