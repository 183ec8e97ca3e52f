#include "mezzo/cli/options.h"

#include <algorithm>
#include <filesystem>
#include <istream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "mezzo/train/files/files.h"

namespace mezzo::cli {
namespace {

/// CLI11's reader cuts a line at any '#', and skips lines of one or two characters; both would go
/// unseen.
class TomlReader : public CLI::ConfigTOML {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::stringstream copy;
    std::string line;
    for (std::int64_t number = 1; std::getline(input, line); ++number) {
      if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
      check_line(CLI::detail::trim_copy(line), number);
      copy << line << '\n';
    }
    return ConfigBase::from_config(copy);
  }

 private:
  static constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of UTF-8

  static void check_line(const std::string& line, std::int64_t number) {
    if (line.empty() || line.front() == '#' || line.front() == ']') return;
    MEZZO_CHECK(line.front() != '[', "--config: line {}: sections are not read, got '{}'", number,
                line);
    MEZZO_CHECK(!line.starts_with("--"), "--config: line {}: keys stand without dashes, got '{}'",
                number, line);
    MEZZO_CHECK(line.size() > 2, "--config: line {}: expected key = value, got '{}'", number, line);
    char quote = '\0', last = '\0';
    for (const char c : line) {
      if (quote == '\0' && c == '#') break;
      MEZZO_CHECK(c != '#', "--config: line {}: '#' inside quotes cannot be read", number);
      if (c == quote) {
        quote = '\0';
      } else if (quote == '\0' && (c == '"' || c == '\'')) {
        quote = c;
      }
      if (c != ' ' && c != '\t') last = c;
    }
    MEZZO_CHECK(quote == '\0', "--config: line {}: a quote is not closed", number);
    MEZZO_CHECK(last != '=', "--config: line {}: expected key = value, got '{}'", number, line);
  }
};

/// What the option was given; empty where it was not, or where there is none such.
std::string given(const CLI::App& app, const std::string& flag) {
  const CLI::Option* option = app.get_option_no_throw(flag);
  return option != nullptr && option->count() > 0 ? option->results().front() : std::string();
}

/// The file of the data set; empty where it is a folder or a name.
std::string data_file(const CLI::App& app) {
  const std::string dataset = given(app, "--dataset");
  std::error_code ignored;
  return std::filesystem::is_regular_file(dataset, ignored) ? dataset : std::string();
}

/// A run may go on in the checkpoint that it resumes; else no file is given twice.
void check_files(const CLI::App& app) {
  const std::string config = given(app, "--config"), dataset = data_file(app);
  for (const char* written : {"--json", "--output"}) {
    const std::string path = given(app, written);
    check_distinct(written, path, "--config", config);
    check_distinct(written, path, "--dataset", dataset);
    for (const char* other : {"--checkpoint", "--resume"}) {
      check_distinct(written, path, other, given(app, other));
    }
  }
  check_distinct("--json", given(app, "--json"), "--output", given(app, "--output"));
  check_distinct("--checkpoint", given(app, "--checkpoint"), "--config", config);
  check_distinct("--checkpoint", given(app, "--checkpoint"), "--dataset", dataset);
}

}  // namespace

void add_config(CLI::App& app) {
  app.set_config("--config", "", "TOML file with these options, without the dashes")
      ->type_name("FILE")
      ->group("Files");
  app.config_formatter(std::make_shared<TomlReader>());
  app.allow_config_extras(CLI::config_extras_mode::error);
}

bool parse_arguments(CLI::App& app, const Arguments& arguments) {
  using mezzo::detail::raise;
  Arguments reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
    check_files(app);
    return true;
  } catch (const CLI::Success& wish) {
    app.exit(wish);
    return false;
  } catch (const CLI::FileError& error) {
    raise<IoError>("--config: {}", error.what());
  } catch (const CLI::ConfigError& error) {
    const std::string_view text = error.what();
    constexpr std::string_view kUnknown = "INI was not able to parse ";
    MEZZO_CHECK(!text.starts_with(kUnknown), "--config: '{}' is not an option of this command",
                text.substr(kUnknown.size()));
    raise<InvalidArgument>("--config: {}", text);
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  } catch (const std::logic_error&) {
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
  // CLI11's own delimiter would pass over an item that is empty.
  const auto split = [flag, set](const std::vector<std::string>& texts) {
    std::vector<std::string> words;
    for (const std::string& text : texts) {
      for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        MEZZO_CHECK(end > begin, "{}: expected items with a comma between, got '{}'", flag, text);
        words.push_back(text.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    set(words);
  };
  app_.add_option_function<std::vector<std::string>>(flag, split, help)
      ->type_name(type)
      ->default_str(default_text)
      ->group(title_);
  return *this;
}

OptionGroup& OptionGroup::flag(const std::string& flag, const std::function<void(bool)>& set,
                               const std::string& help) {
  const auto check = [](const std::string& value) {
    const bool known = value == "true" || value == "false";
    return known ? std::string()
                 : fmt::format("expected no value, or true or false, got '{}'", value);
  };
  app_.add_flag_function(
          flag, [set](std::int64_t count) { set(count > 0); }, help)
      ->check(check)
      ->group(title_);
  return *this;
}

OptionGroup& OptionGroup::flag(const std::string& flag, bool& target, const std::string& help) {
  return this->flag(
      flag, [&target](bool on) { target = on; }, help);
}

}  // namespace mezzo::cli
