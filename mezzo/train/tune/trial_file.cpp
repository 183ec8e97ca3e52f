#include "mezzo/train/tune/trial_file.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <utility>

#include <c10/util/Exception.h>

#include "mezzo/core/error.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/options/option_fields.h"

namespace mezzo {
namespace {

using nlohmann::json;

constexpr const char* kRunning = "running";
constexpr const char* kKilled = "the process ended during the trial";

/// Sets the result of the trial to that of its row. Throws json::exception.
void set_result(const json& row, Trial& trial) {
  const json &score = row.at("score"), &failure = row.at("failure");
  trial.score = score.is_null() ? std::nan("") : score.get<double>();
  trial.seconds = row.at("seconds").get<double>();
  trial.failure = failure.is_null() ? "" : failure.get<std::string>();
}

}  // namespace

OrderedJson trial_to_json(const Trial& trial) {
  return {{"epochs", trial.epochs},
          {"score", json_number(trial.score)},
          {"seconds", trial.seconds},
          {"failure", text_or_null(trial.failure)},
          {"options", OrderedJson::parse(config_to_json(trial.options))}};
}

TrialFile::TrialFile(std::string path, json job)
    : path_(std::move(path)),
      content_(json::object(
          {{"job", std::move(job)}, {"precision", nullptr}, {"trials", json::array()}})) {
  if (!path_.empty()) check_writable("output", path_);
  if (!path_.empty() && std::filesystem::is_regular_file(path_)) read();
}

void TrialFile::read() {
  std::ifstream stream(path_, std::ios::binary);
  try {
    json before = json::parse(stream);
    bool was_killed = false;
    for (const auto& [name, value] : content_.at("job").items()) {
      const json& other = before.at("job").at(name);
      MEZZO_CHECK(other == value,
                  "output: {} has trials of another job: expected {} {}, got {}; choose another "
                  "--output, or remove the file",
                  path_, name, json_line(value), json_line(other));
    }
    for (json& row : before.at("trials")) {
      static_cast<void>(row.at("options"));
      Trial trial{.options = {}, .epochs = row.at("epochs").get<std::int64_t>()};
      set_result(row, trial);
      if (trial.failure != kRunning) continue;
      row.at("failure") = kKilled;
      was_killed = true;
      TORCH_WARN("mezzo: ", path_, ": a trial of ", trial.epochs,
                 " epochs counts as failed: ", kKilled);
    }
    const json& precision = before.at("precision");
    if (!precision.is_null()) static_cast<void>(amp::parse_precision(precision.get<std::string>()));
    content_ = std::move(before);
    if (was_killed) write();
  } catch (const json::exception&) {
    detail::raise<IoError>("{}: expected trials of mezzo tune; choose another --output", path_);
  }
}

void TrialFile::write() const {
  if (path_.empty()) return;
  replace_file(path_, [this](std::ostream& file) { file << json_line(content_) << '\n'; });
}

std::optional<amp::Precision> TrialFile::precision() const {
  const json& text = content_.at("precision");
  if (text.is_null()) return std::nullopt;
  return amp::parse_precision(text.get<std::string>());
}

void TrialFile::set_precision(amp::Precision precision) {
  content_["precision"] = fields::to_text(precision);
}

bool TrialFile::read_result(Trial& trial) const {
  const json config = json::parse(config_to_json(trial.options));
  for (const json& row : content_.at("trials")) {
    if (row.at("epochs") != trial.epochs || row.at("options") != config) continue;
    set_result(row, trial);
    return true;
  }
  return false;
}

void TrialFile::begin(const Trial& trial) {
  Trial running = trial;
  running.failure = kRunning;
  content_["trials"].push_back(json(trial_to_json(running)));
  write();
}

void TrialFile::end(const Trial& trial) {
  content_["trials"].back() = json(trial_to_json(trial));
  write();
}

void TrialFile::drop() {
  json& rows = content_["trials"];
  rows.erase(rows.size() - 1);
  write();
}

}  // namespace mezzo
