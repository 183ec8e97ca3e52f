#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "mezzo/cli/commands/commands.h"
#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/core/type_list.h"

namespace CLI {
class App;  // its header costs seconds: only options.cpp includes it
}

namespace mezzo::cli {

/// The options of one command. OptionGroup adds them.
class OptionParser {
 public:
  /// name: the program and its command, such as `mezzo train`.
  OptionParser(const std::string& description, const std::string& name);
  ~OptionParser();

  void add_version(const std::function<std::string()>& version);
  /// A word that the help lists.
  void add_command(std::string_view name, std::string_view description);
  /// Text below the help.
  void set_footer(const std::string& text);
  /// From the first word that is no option on, the arguments stay as they are: rest() returns them.
  void keep_rest();
  Arguments rest() const;

  /// Whether the parsed arguments, or the file of --config, set the option; false if there is no
  /// such option. flag: with its dashes.
  bool given(std::string_view flag) const;

 private:
  friend class OptionGroup;
  friend bool parse_arguments(OptionParser& parser, const Arguments& arguments);
  friend void add_config(OptionParser& parser);

  std::unique_ptr<CLI::App> app_;
};

/// Parses the arguments, and the file that --config names. Returns false if help or a version was
/// asked for, and printed. Throws InvalidArgument for wrong usage (an unknown key of the file
/// included) and for an output that is the file of an input, IoError for a file that cannot be
/// read.
bool parse_arguments(OptionParser& parser, const Arguments& arguments);

/// Adds --config.
void add_config(OptionParser& parser);

/// The whole of `text` as a number (int64, uint64 or double), in its range. Throws InvalidArgument
/// that names the flag.
template <class T>
T parse_number(const std::string& flag, const std::string& text);

/// Options under one heading of the help. Every option takes one value; its text is checked here.
/// The default in the help is the target's value.
class OptionGroup {
 public:
  OptionGroup(OptionParser& parser, std::string title);

  /// T: a number.
  template <class T>
  OptionGroup& number(const std::string& flag, T& target, const std::string& help) {
    return value(
        flag, std::is_floating_point_v<T> ? "NUMBER" : "N",
        [flag, &target](const std::string& text) { target = parse_number<T>(flag, text); }, help,
        fmt::format("{}", target));
  }
  template <class T>
  OptionGroup& number(const std::string& flag, std::optional<T>& target, const std::string& help) {
    return value(
        flag, std::is_floating_point_v<T> ? "NUMBER" : "N",
        [flag, &target](const std::string& text) { target = parse_number<T>(flag, text); }, help);
  }

  /// List: a TypeList; the option takes a name of it.
  template <class List, class Kind>
  OptionGroup& choice(const std::string& flag, List list, Kind& target, const std::string& help) {
    return value(
        flag, "NAME",
        [flag, list, &target](const std::string& text) { target = parse(list, flag, text); },
        help + ": " + detail::names(list), std::string(name_of(list, target)));
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
  CLI::App& app_;
  std::string title_;
};

}  // namespace mezzo::cli
