#include "mezzo/data/formats.h"

#include <algorithm>

namespace mezzo::data {

extern const Format kCsvFormat, kGnnBenchmarkFormat, kGraphBoltFormat, kGraphSaintFormat,
    kHeterophilousFormat, kMappedFormat, kMatrixMarketFormat, kNpyFormat, kOgbFormat,
    kPlanetoidFormat, kRedditFormat, kSnapFormat, kTuFormat, kWordnetFormat;

namespace {

/// The first format that recognises a path is used.
constexpr const Format* kFormats[] = {
    &kMappedFormat,        &kNpyFormat,          &kWordnetFormat, &kPlanetoidFormat,
    &kOgbFormat,           &kGraphSaintFormat,   &kRedditFormat,  &kGraphBoltFormat,
    &kCsvFormat,           &kMatrixMarketFormat, &kSnapFormat,    &kGnnBenchmarkFormat,
    &kHeterophilousFormat, &kTuFormat,
};

bool recognises(const Format& format, const std::filesystem::path& path) {
  const auto is_there = [&](const char* file) {
    return file != nullptr && std::filesystem::exists(path / file);
  };
  return std::any_of(format.files.begin(), format.files.end(), is_there) ||
         (format.recognise != nullptr && format.recognise(path));
}

}  // namespace

const Format* find_format(const std::filesystem::path& path) {
  const auto* const match =
      std::find_if(std::begin(kFormats), std::end(kFormats),
                   [&](const Format* format) { return recognises(*format, path); });
  return match == std::end(kFormats) ? nullptr : *match;
}

}  // namespace mezzo::data
