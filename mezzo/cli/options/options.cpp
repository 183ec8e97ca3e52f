#include "mezzo/cli/options/options.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <istream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "mezzo/cli/options/suggestion.h"
#include "mezzo/train/files/files.h"

namespace mezzo::cli {
namespace {

/// Refuses lines that CLI11's reader would misread silently: it cuts them at any '#', and skips
/// values of one or two characters.
class TomlReader : public CLI::ConfigTOML {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::stringstream copy;
    std::string line;
    std::int64_t open_lists = 0;
    for (std::int64_t number = 1; std::getline(input, line); ++number) {
      if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
      open_lists += check_line(CLI::detail::trim_copy(line), number);
      copy << line << '\n';
    }
    MEZZO_CHECK(open_lists == 0, "--config: expected as many ] as [, got {} {}",
                std::abs(open_lists), open_lists > 0 ? "fewer" : "more");
    return ConfigBase::from_config(copy);
  }

 private:
  static constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // of UTF-8

  /// Returns how many lists the line opens, less those that it closes.
  static std::int64_t check_line(const std::string& line, std::int64_t number) {
    if (line.empty() || line.front() == '#') return 0;
    if (line.front() == ']') return -1;
    MEZZO_CHECK(line.front() != '[', "--config: line {}: sections are not read, got '{}'", number,
                line);
    MEZZO_CHECK(!line.starts_with("--"),
                "--config: line {}: expected a key without dashes, got '{}'", number, line);
    MEZZO_CHECK(line.size() > 2, "--config: line {}: expected key = value, got '{}'", number, line);
    char quote = '\0', last = '\0';
    std::int64_t open_lists = 0;
    for (const char c : line) {
      if (quote == '\0' && c == '#') break;
      MEZZO_CHECK(c != '#', "--config: line {}: '#' inside quotes cannot be read", number);
      if (c == quote) {
        quote = '\0';
      } else if (quote == '\0' && (c == '"' || c == '\'')) {
        quote = c;
      } else if (quote == '\0') {
        open_lists += c == '[' ? 1 : c == ']' ? -1 : 0;
      }
      if (c != ' ' && c != '\t') last = c;
    }
    MEZZO_CHECK(quote == '\0', "--config: line {}: a quote is not closed", number);
    MEZZO_CHECK(last != '=', "--config: line {}: expected key = value, got '{}'", number, line);
    return open_lists;
  }
};

/// The value of an option; empty if it is not set or there is no such option.
std::string value_of(const CLI::App& app, const std::string& flag) {
  const CLI::Option* option = app.get_option_no_throw(flag);
  return option != nullptr && option->count() > 0 ? option->results().front() : std::string();
}

/// The option's value, or its default.
std::string value_or_default(const CLI::App& app, const std::string& flag) {
  const CLI::Option* option = app.get_option_no_throw(flag);
  if (option == nullptr || option->count() > 0) return value_of(app, flag);
  return option->get_default_str();
}

/// The file of the data set; empty for a folder or a name.
std::string data_file(const CLI::App& app) {
  const std::string dataset = value_of(app, "--dataset");
  std::error_code ignored;
  return std::filesystem::is_regular_file(dataset, ignored) ? dataset : std::string();
}

/// No file may be named twice, except that a run may resume and write the same checkpoint.
void check_files(const CLI::App& app) {
  const std::string config = value_of(app, "--config"), dataset = data_file(app);
  for (const char* written : {"--json", "--report", "--output"}) {
    const std::string path = value_or_default(app, written);
    check_distinct(written, path, "--config", config);
    check_distinct(written, path, "--dataset", dataset);
    for (const char* other : {"--checkpoint", "--resume", "--init"}) {
      check_distinct(written, path, other, value_of(app, other));
    }
  }
  const std::string output = value_or_default(app, "--output"), json = value_of(app, "--json");
  check_distinct("--json", json, "--output", output);
  check_distinct("--report", value_of(app, "--report"), "--output", output);
  check_distinct("--report", value_of(app, "--report"), "--json", json);
  check_distinct("--checkpoint", value_of(app, "--checkpoint"), "--config", config);
  check_distinct("--checkpoint", value_of(app, "--checkpoint"), "--dataset", dataset);
}

/// The names of all options, each after `dashes`.
std::vector<std::string> option_names(const CLI::App& app, const std::string& dashes) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(dashes + name);
  }
  return names;
}

/// Throws InvalidArgument for words that are no option and no value of one.
[[noreturn]] void refuse_words(const CLI::App& app, const Arguments& words) {
  const std::vector<std::string> names = option_names(app, "--");
  std::string unknown, value;
  for (const std::string& word : words) {
    if (word == "--") continue;
    if (!word.starts_with('-')) {
      if (value.empty()) value = word;
      continue;
    }
    const std::string flag = word.substr(0, word.find('='));
    unknown += (unknown.empty() ? "" : ", ") + flag + did_you_mean(flag, names);
  }
  MEZZO_CHECK(unknown.empty(), "{} has no option {}", app.get_name(), unknown);
  const bool has_dataset = app.get_option_no_throw("--dataset") != nullptr;
  mezzo::detail::raise<InvalidArgument>(
      "{}: expected options, got '{}'{}", app.get_name(), value,
      has_dataset ? "; for a data set write --dataset " + value : "");
}

}  // namespace

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
template std::int64_t parse_number(const std::string& flag, const std::string& text);
template std::uint64_t parse_number(const std::string& flag, const std::string& text);
template double parse_number(const std::string& flag, const std::string& text);

OptionParser::OptionParser(const std::string& description, const std::string& name)
    : app_(std::make_unique<CLI::App>(description, name)) {}

OptionParser::~OptionParser() = default;

void OptionParser::add_version(const std::function<std::string()>& version) {
  app_->set_version_flag("--version", version, "Print versions and exit");
}

void OptionParser::add_command(std::string_view name, std::string_view description) {
  app_->add_subcommand(std::string(name), std::string(description));
}

void OptionParser::set_footer(const std::string& text) {
  app_->footer(text);
}

void OptionParser::keep_rest() {
  app_->prefix_command();
}

Arguments OptionParser::rest() const {
  return app_->remaining();
}

bool OptionParser::given(std::string_view flag) const {
  const CLI::Option* option = app_->get_option_no_throw(std::string(flag));
  return option != nullptr && option->count() > 0;
}

void add_config(OptionParser& parser) {
  CLI::App& app = *parser.app_;
  app.set_config("--config", "", "TOML file with these options, without the dashes")
      ->type_name("FILE")
      ->group("Files");
  app.config_formatter(std::make_shared<TomlReader>());
  app.allow_config_extras(CLI::config_extras_mode::error);
}

bool parse_arguments(OptionParser& parser, const Arguments& arguments) {
  CLI::App& app = *parser.app_;
  using mezzo::detail::raise;
  Arguments reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
    const Arguments rest = app.remaining();
    if (!rest.empty() && rest.front().starts_with('-') && rest.front() != "--") {
      refuse_words(app, {rest.front()});
    }
    check_files(app);
    return true;
  } catch (const CLI::Success& help) {
    app.exit(help);
    return false;
  } catch (const CLI::FileError& error) {
    raise<IoError>("--config: {}", error.what());
  } catch (const CLI::ConfigError& error) {
    const std::string_view text = error.what();
    constexpr std::string_view kUnknown = "INI was not able to parse ";
    if (text.starts_with(kUnknown)) {
      const std::string_view key = text.substr(kUnknown.size());
      raise<InvalidArgument>("--config: {} has no option {}{}", app.get_name(), key,
                             did_you_mean(key, option_names(app, "")));
    }
    raise<InvalidArgument>("--config: {}", text);
  } catch (const CLI::ExtrasError&) {
    refuse_words(app, app.remaining());
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string_view text = error.what();  // "--seed: 1 required N missing"
    const std::size_t colon = text.find(": ");
    if (colon == std::string_view::npos) throw InvalidArgument(error.what());
    raise<InvalidArgument>(
        "{}: expected {}", text.substr(0, colon),
        text.ends_with("missing") ? "a value, got none" : "one value, got several");
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  } catch (const std::logic_error&) {
    throw InvalidArgument("a flag expects no value, or true or false");
  }
}

OptionGroup::OptionGroup(OptionParser& parser, std::string title)
    : app_(*parser.app_), title_(std::move(title)) {}

OptionGroup& OptionGroup::text(const std::string& flag, std::string& target,
                               const std::string& type, const std::string& help) {
  const auto set = [flag, &target](const std::string& text) {
    MEZZO_CHECK(!text.empty(), "{}: expected a text that is not empty", flag);
    target = text;
  };
  return value(flag, type, set, help, target);
}

OptionGroup& OptionGroup::value(const std::string& flag, const std::string& type,
                                const std::function<void(const std::string&)>& set,
                                const std::string& help, const std::string& default_text) {
  app_.add_option_function<std::string>(flag, set, help)
      ->type_name(type)
      ->default_str(default_text)
      ->group(title_);
  return *this;
}

OptionGroup& OptionGroup::list(const std::string& flag, const std::string& type,
                               const std::function<void(const std::vector<std::string>&)>& set,
                               const std::string& help, const std::string& default_text) {
  // CLI11's own delimiter would ignore empty items.
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
