#include "mezzo/cli/options.h"

#include <algorithm>
#include <stdexcept>

#include <CLI/CLI.hpp>

namespace mezzo::cli {

void add_config(CLI::App& app) {
  app.set_config("--config", "", "TOML file with these options, without the dashes")
      ->type_name("FILE")
      ->group("Files");
  app.allow_config_extras(CLI::config_extras_mode::error);
}

bool parse_arguments(CLI::App& app, const Arguments& arguments) {
  using mezzo::detail::raise;
  Arguments reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
    return true;
  } catch (const CLI::Success& wish) {
    app.exit(wish);
    return false;
  } catch (const CLI::FileError& error) {
    raise<IoError>("--config: {}", error.what());
  } catch (const CLI::ConfigError& error) {
    // "INI was not able to parse <key>"
    const std::string text = error.what();
    raise<InvalidArgument>("--config: unknown or misplaced key '{}'",
                           text.substr(text.rfind(' ') + 1));
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  } catch (const std::invalid_argument&) {
    throw InvalidArgument("a flag expects no value, or true or false");
  }
}

CLI::Option* OptionGroup::add(const std::string& flag, const std::string& type,
                              const std::function<void(const std::string&)>& set,
                              const std::string& help) {
  return app_.add_option_function<std::string>(flag, set, help)->type_name(type)->group(title_);
}

OptionGroup& OptionGroup::text(const std::string& flag, std::string& target,
                               const std::string& type, const std::string& help) {
  add(
      flag, type,
      [flag, &target](const std::string& text) {
        MEZZO_CHECK(!text.empty(), "{}: expected a text that is not empty", flag);
        target = text;
      },
      help)
      ->default_str(target);
  return *this;
}

OptionGroup& OptionGroup::value(const std::string& flag, const std::string& type,
                                const std::function<void(const std::string&)>& set,
                                const std::string& help, const std::string& default_text) {
  add(flag, type, set, help)->default_str(default_text);
  return *this;
}

OptionGroup& OptionGroup::list(const std::string& flag, const std::string& type,
                               const std::function<void(const std::vector<std::string>&)>& set,
                               const std::string& help, const std::string& default_text) {
  app_.add_option_function<std::vector<std::string>>(flag, set, help)
      ->delimiter(',')
      ->type_name(type)
      ->default_str(default_text)
      ->group(title_);
  return *this;
}

OptionGroup& OptionGroup::flag(const std::string& flag, const std::function<void(bool)>& set,
                               const std::string& help) {
  app_.add_flag_function(
          flag, [set](std::int64_t count) { set(count > 0); }, help)
      ->group(title_);
  return *this;
}

OptionGroup& OptionGroup::flag(const std::string& flag, bool& target, const std::string& help) {
  return this->flag(
      flag, [&target](bool on) { target = on; }, help);
}

}  // namespace mezzo::cli
