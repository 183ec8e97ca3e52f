#include <string>

#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

c10::IValue read(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  if (!archive.try_read(key, value)) {
    mezzo::detail::raise<IoError>("GradScaler::load: the archive has no '{}'", key);
  }
  return value;
}

double read_double(torch::serialize::InputArchive& archive, const std::string& key) {
  const c10::IValue value = read(archive, key);
  if (!value.isDouble()) {
    mezzo::detail::raise<IoError>("GradScaler::load: expected '{}' to be a float, got {}", key,
                                  value.tagKind());
  }
  return value.toDouble();
}

std::int64_t read_int(torch::serialize::InputArchive& archive, const std::string& key) {
  const c10::IValue value = read(archive, key);
  if (!value.isInt()) {
    mezzo::detail::raise<IoError>("GradScaler::load: expected '{}' to be an int, got {}", key,
                                  value.tagKind());
  }
  return value.toInt();
}

std::int64_t read_count(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  return archive.try_read(key, value) ? read_int(archive, key) : 0;
}

std::vector<double> read_rule(torch::serialize::InputArchive& archive) {
  c10::IValue value;
  if (!archive.try_read("rule", value)) return {};
  if (!value.isDoubleList()) {
    mezzo::detail::raise<IoError>("GradScaler::load: expected 'rule' to be floats, got {}",
                                  value.tagKind());
  }
  return value.toDoubleVector();
}

}  // namespace

void GradScaler::save(torch::serialize::OutputArchive& archive) const {
  if (!enabled_) return;
  const ScalerState state = state_dict();
  archive.write("scale", c10::IValue(state.scale));
  archive.write("growth_factor", c10::IValue(state.growth_factor));
  archive.write("backoff_factor", c10::IValue(state.backoff_factor));
  archive.write("growth_interval", c10::IValue(state.growth_interval));
  archive.write("_growth_tracker", c10::IValue(state.growth_tracker));
  archive.write("hysteresis_spent", c10::IValue(state.hysteresis_spent));
  archive.write("updates_since_rescale", c10::IValue(state.updates_since_rescale));
  archive.write("overflows_since_rescale", c10::IValue(state.overflows_since_rescale));
  archive.write("skipped_steps", c10::IValue(state.skipped_steps));
  if (!state.rule.empty()) archive.write("rule", c10::IValue(state.rule));
}

void GradScaler::load(torch::serialize::InputArchive& archive) {
  if (!enabled_) return;
  if (archive.keys().empty()) {
    load_state_dict({});
    return;
  }
  load_state_dict({.scale = read_double(archive, "scale"),
                   .growth_factor = read_double(archive, "growth_factor"),
                   .backoff_factor = read_double(archive, "backoff_factor"),
                   .growth_interval = read_int(archive, "growth_interval"),
                   .growth_tracker = read_int(archive, "_growth_tracker"),
                   .hysteresis_spent = read_count(archive, "hysteresis_spent"),
                   .updates_since_rescale = read_count(archive, "updates_since_rescale"),
                   .overflows_since_rescale = read_count(archive, "overflows_since_rescale"),
                   .skipped_steps = read_count(archive, "skipped_steps"),
                   .rule = read_rule(archive)});
}

}  // namespace mezzo::amp
