#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mezzo/data/dataset.h"

/// meta.json of an npy folder; internal.
namespace mezzo::data {

/// The values of meta.json that the array readers need.
struct NpyMeta {
  std::optional<std::string> name;
  std::optional<std::int64_t> num_nodes, num_edges, num_features, num_classes;
  std::vector<std::string> class_names;
  std::optional<Metric> metric;
  std::optional<Task> task;
};

/// Reads `folder`/meta.json; no values if there is none. Throws IoError for values of wrong types.
NpyMeta read_npy_meta(const std::filesystem::path& folder);

}  // namespace mezzo::data
