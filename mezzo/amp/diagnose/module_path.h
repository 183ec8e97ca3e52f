#pragma once

#include <string_view>

namespace mezzo::amp::detail {

/// Whether `path`, of a module or parameter, is `module` or lies in it.
inline bool is_in_module(std::string_view path, std::string_view module) {
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

}  // namespace mezzo::amp::detail
