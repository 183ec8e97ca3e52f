#pragma once

#include <cstdlib>
#include <string>

namespace mezzo {

/// The environment variable `name`; empty where it is not set, which is the same to the library.
inline std::string environment_text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::string() : std::string(text);
}

}  // namespace mezzo
