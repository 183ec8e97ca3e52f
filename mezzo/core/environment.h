#pragma once

#include <cstdlib>
#include <string>

namespace mezzo {

/// The environment variable `name`; empty if it is not set.
inline std::string environment_text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string() : std::string(text);
}

}  // namespace mezzo
