#include <string>

#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>

#include "mezzo/amp/grad_scaler.h"
#include "mezzo/core/error.h"

namespace mezzo::amp {
namespace {

c10::IValue read(torch::serialize::InputArchive& archive, const std::string& key) {
  c10::IValue value;
  if (!archive.try_read(key, value)) {
    detail::raise<IoError>("GradScaler::load: the archive has no '{}'", key);
  }
  return value;
}

double read_double(torch::serialize::InputArchive& archive, const std::string& key) {
  const c10::IValue value = read(archive, key);
  if (!value.isDouble()) {
    detail::raise<IoError>("GradScaler::load: expected '{}' to be a float, got {}", key,
                           value.tagKind());
  }
  return value.toDouble();
}

std::int64_t read_int(torch::serialize::InputArchive& archive, const std::string& key) {
  const c10::IValue value = read(archive, key);
  if (!value.isInt()) {
    detail::raise<IoError>("GradScaler::load: expected '{}' to be an int, got {}", key,
                           value.tagKind());
  }
  return value.toInt();
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
                   .growth_tracker = read_int(archive, "_growth_tracker")});
}

}  // namespace mezzo::amp
