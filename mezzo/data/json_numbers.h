#pragma once

#include <cstdint>
#include <limits>

#include <nlohmann/json.hpp>

namespace mezzo::data {

/// An integer of 64 bits; the type of the library holds larger ones too, which would wrap.
inline bool is_int64(const nlohmann::json& value) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<std::uint64_t>() > kMost);
}

}  // namespace mezzo::data
