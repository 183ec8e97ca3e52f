#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "mezzo/core/environment.h"
#include "mezzo/core/error.h"
#include "mezzo/core/type_list.h"

namespace mezzo {

namespace detail {

/// Whether two texts are equal but for the case of ASCII letters.
inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

/// Whether `text` is the name of T, or its `long_name` if it has one.
template <class T>
bool is_name_of(std::string_view text) {
  if constexpr (requires { T::long_name; }) {
    if (equal_ignoring_case(text, T::long_name)) return true;
  }
  return equal_ignoring_case(text, T::name);
}

}  // namespace detail

/// The kind of the member with the name `text`, in any case. A member may also have a `long_name`,
/// which is read as its name. Throws InvalidArgument if there is no such member,
/// with `what`, the text and all names.
template <class First, class... Rest>
auto parse(TypeList<First, Rest...> list, std::string_view what, std::string_view text) {
  using Kind = std::remove_const_t<decltype(First::kind)>;
  Kind kind{};
  bool is_member = false;
  detail::for_each(list, [&]<class T>() {
    if (detail::is_name_of<T>(text)) {
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
