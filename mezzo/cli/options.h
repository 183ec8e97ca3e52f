#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include <CLI/App.hpp>

#include "mezzo/cli/commands.h"
#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/core/type_list.h"

namespace mezzo::cli {

/// Parses the arguments, and the file that --config names. Returns false where help or a version
/// was asked for, and printed. Throws InvalidArgument for wrong usage (an unknown key of the file
/// included) and an output that is named by the file of an input, IoError for a file that cannot be
/// read.
bool parse_arguments(CLI::App& app, const Arguments& arguments);

/// Adds --config.
void add_config(CLI::App& app);

template <class T>
struct Unwrapped {
  using Type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using Type = T;
};

/// The whole of `text` as a number, in its range. Throws InvalidArgument that names the flag.
template <class T>
T parse_number(const std::string& flag, const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  MEZZO_CHECK(failure == std::errc() && stop == end && !text.empty(), "{}: expected {}, got '{}'",
              flag,
              std::is_floating_point_v<T> ? "a number"
              : std::is_signed_v<T>       ? "an integer"
                                          : "an integer of at least 0",
              text);
  return value;
}

/// Options under one heading of the help. Every option takes one value, of which the text is
/// checked here; the default is the target's value.
class OptionGroup {
 public:
  OptionGroup(CLI::App& app, std::string title) : app_(app), title_(std::move(title)) {}

  /// T: a number, or an optional one.
  template <class T>
  OptionGroup& number(const std::string& flag, T& target, const std::string& help) {
    using Number = typename Unwrapped<T>::Type;
    CLI::Option* option = add(
        flag, std::is_floating_point_v<Number> ? "NUMBER" : "N",
        [flag, &target](const std::string& text) { target = parse_number<Number>(flag, text); },
        help);
    if constexpr (std::is_same_v<T, Number>) option->default_str(fmt::format("{}", target));
    return *this;
  }

  /// List: a TypeList; the option takes a name of it.
  template <class List, class Kind>
  OptionGroup& choice(const std::string& flag, List list, Kind& target, const std::string& help) {
    add(
        flag, "NAME",
        [flag, list, &target](const std::string& text) { target = parse(list, flag, text); },
        help + ": " + names(list))
        ->default_str(std::string(name_of(list, target)));
    return *this;
  }

  /// A text that is not empty.
  OptionGroup& text(const std::string& flag, std::string& target, const std::string& type,
                    const std::string& help);

  /// Calls `set` with the value; the default is for the help only.
  OptionGroup& value(const std::string& flag, const std::string& type,
                     const std::function<void(const std::string&)>& set, const std::string& help,
                     const std::string& default_text = "");

  /// Several values, separated by commas.
  OptionGroup& list(const std::string& flag, const std::string& type,
                    const std::function<void(const std::vector<std::string>&)>& set,
                    const std::string& help, const std::string& default_text = "");

  /// Calls `set` with true, or with false for `flag=false`.
  OptionGroup& flag(const std::string& flag, const std::function<void(bool)>& set,
                    const std::string& help);
  OptionGroup& flag(const std::string& flag, bool& target, const std::string& help);

 private:
  CLI::Option* add(const std::string& flag, const std::string& type,
                   const std::function<void(const std::string&)>& set, const std::string& help);

  CLI::App& app_;
  std::string title_;
};

}  // namespace mezzo::cli
