#pragma once

#include <string>
#include <vector>

#include "mezzo/amp/diagnose/diagnose.h"
#include "mezzo/core/table.h"

namespace mezzo::amp::detail {

/// Writes a setting, e.g. as options of a command.
using DescribeSetting = std::string (*)(const PrecisionSetting&);

/// "none", "dynamic" or the constant.
std::string loss_scale_text(const PrecisionSetting& setting);

/// Tables of the runs, of the places where 16 bits lose numbers and, unless interrupted, of the
/// precisions.
std::vector<Table> diagnosis_tables(const Diagnosis& diagnosis, DescribeSetting describe);

/// The tables, issues and recommendation of to_text().
std::string diagnosis_text(const Diagnosis& diagnosis, DescribeSetting describe);

/// What to do about an issue.
std::string fix_text(const Diagnosis& diagnosis, const DiagnosisIssue& issue,
                     DescribeSetting describe);

}  // namespace mezzo::amp::detail
