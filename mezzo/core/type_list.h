#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mezzo {

/// A list of types, one per dtype, reducer or the like. Each member has a static `kind` (an
/// enumerator) and a static `name`.
template <class... Ts>
struct TypeList {
  static constexpr std::size_t size = sizeof...(Ts);
};

namespace detail {

/// Calls `f.operator()<T>()` for the member whose `kind` equals `kind`. Returns whether there is
/// one.
template <class... Ts, class Kind, class F>
constexpr bool visit(TypeList<Ts...> /*list*/, Kind kind, F&& f) {
  return ((kind == Ts::kind && (f.template operator()<Ts>(), true)) || ...);
}

/// Calls `f.operator()<T>()` for every member, in order.
template <class... Ts, class F>
constexpr void for_each(TypeList<Ts...> /*list*/, F&& f) {
  (f.template operator()<Ts>(), ...);
}

/// The members' names, separated by ", ".
template <class... Ts>
std::string names(TypeList<Ts...> /*list*/) {
  std::string text;
  ((text += (text.empty() ? "" : ", "), text += Ts::name), ...);
  return text;
}

}  // namespace detail

/// The name of the member whose `kind` equals `kind`; empty if no member has this kind.
template <class... Ts, class Kind>
constexpr std::string_view name_of(TypeList<Ts...> list, Kind kind) {
  std::string_view name;
  detail::visit(list, kind, [&]<class T>() { name = T::name; });
  return name;
}

}  // namespace mezzo
