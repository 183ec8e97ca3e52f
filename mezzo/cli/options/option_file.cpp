#include "mezzo/cli/options/option_file.h"

#include <algorithm>
#include <functional>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/train/options/option_fields.h"

namespace mezzo::cli {
namespace {

template <class T>
std::string toml_value(const T& value) {
  if constexpr (fields::kIsOptional<T>) {
    return toml_value(*value);
  } else if constexpr (fields::Textual<T>) {
    return toml_value(fields::to_text(value));
  } else if constexpr (std::is_same_v<T, std::string>) {
    MEZZO_CHECK(value.find_first_of("#\"\\\n") == std::string::npos,
                "--output: expected no #, quote or backslash, which --config cannot read, in '{}'",
                value);
    return fmt::format("\"{}\"", value);
  } else if constexpr (requires { value.begin(); }) {
    std::vector<std::string> items;
    for (const auto& item : value) items.push_back(toml_value(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  } else {
    return fmt::format("{}", value);
  }
}

/// One line for each option of those that `takes(field)` names that has a value and a meaning.
template <class List, class Options, class Takes>
std::string toml_lines(const List& list, const Options& options, Takes&& takes) {
  std::string lines;
  fields::for_each(list, [&]<class T>(const fields::Field<Options, T>& field) {
    using enum fields::Group;
    const auto& value = options.*field.member;
    if (!takes(field)) return;
    if (field.group == kProcesses || field.group == kFiles || field.group == kData) return;
    if (field.rules.applies != nullptr && !field.rules.applies(options)) return;
    if constexpr (std::is_same_v<T, bool>) {  // a flag may turn the option off
      lines += fmt::format("{} = {}\n", flag_of(field), value != Options().*field.member);
      return;
    } else if constexpr (fields::kIsOptional<T>) {
      if (!value) return;
    } else if constexpr (requires { value.empty(); }) {
      if (value.empty()) return;
    }
    lines += fmt::format("{} = {}\n", field.name, toml_value(value));
  });
  return lines;
}

}  // namespace

std::string option_file(const DataArguments& data, const MachineArguments& machine,
                        const TrainOptions& options, const std::vector<std::string>& fixed) {
  std::string lines;
  const auto is_chosen = [&fixed](const auto& field) {
    const bool by_tune = field.rules.in_recipe || field.group == fields::Group::kPrecision;
    return by_tune && std::find(fixed.begin(), fixed.end(), field.name) == fixed.end();
  };
  const auto add = [&](const char* key, const std::string& text) {
    if (!text.empty()) lines += fmt::format("{} = {}\n", key, toml_value(text));
  };
  add("dataset", options.dataset);
  add("split", data.load.split);
  if (data.split_index) lines += fmt::format("split-index = {}\n", *data.split_index);
  if (data.load.task) add("task", std::string(name_of(Tasks{}, *data.load.task)));
  if (data.load.metric) add("metric", metric_name(*data.load.metric));
  fields::for_each(fields::kColumns,
                   [&](const auto& field) { add(field.name, data.load.csv.*field.member); });
  add("device", machine.device);
  lines += toml_lines(fields::kTraining, options, std::not_fn(is_chosen));
  if (options.sampling) {
    lines += toml_lines(fields::kSampling, *options.sampling, [](const auto&) { return true; });
  }
  lines += fmt::format("{}\n", kChosenByTune);
  lines += "recipe = \"planetoid\"\n";  // what the file does not have is TrainOptions' default
  lines += toml_lines(fields::kTraining, options, is_chosen);
  return lines;
}

}  // namespace mezzo::cli
