#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "mezzo/core/environment.h"
#include "mezzo/core/error.h"
#include "mezzo/core/type_list.h"

namespace mezzo {

/// The kind of the member with the name `text`. Throws InvalidArgument if there is no such member,
/// with `what`, the text and all names.
template <class First, class... Rest>
auto parse(TypeList<First, Rest...> list, std::string_view what, std::string_view text) {
  using Kind = std::remove_const_t<decltype(First::kind)>;
  Kind kind{};
  bool is_member = false;
  detail::for_each(list, [&]<class T>() {
    if (text == T::name) {
      kind = T::kind;
      is_member = true;
    }
  });
  MEZZO_CHECK(is_member, "{}: '{}' is not one of {}", what, text, detail::names(list));
  return kind;
}

/// parse() of the environment variable `name`; nullopt if it is not set.
template <class First, class... Rest>
std::optional<std::remove_const_t<decltype(First::kind)>> parse_variable(
    TypeList<First, Rest...> list, const char* name) {
  const std::string text = environment_text(name);
  if (text.empty()) return std::nullopt;
  return parse(list, name, text);
}

}  // namespace mezzo
