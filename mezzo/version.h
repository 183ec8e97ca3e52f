#pragma once

#include <string_view>

namespace mezzo {

/// The library's version, "major.minor.patch". CMake reads it from this line.
inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace mezzo
