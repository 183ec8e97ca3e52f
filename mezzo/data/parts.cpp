#include "mezzo/data/parts.h"

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/data/mapped/folder_writer.h"
#include "mezzo/data/mapped/part_writer.h"
#include "mezzo/data/readers.h"

namespace mezzo {
namespace {

constexpr std::int64_t kMostHops = 254;

/// Returns the number of parts.
std::int64_t check_parts(const Dataset& dataset, const at::Tensor& parts,
                         const PartsOptions& options) {
  MEZZO_CHECK(!dataset.part, "parts: {} is a part of a data set already; cut the whole",
              dataset.origin);
  MEZZO_CHECK(!dataset.edge_weights.defined(),
              "parts: {} has edge weights, which parts do not have; read or convert it without "
              "--weight, or without edge_weights.npy",
              dataset.origin);
  MEZZO_CHECK(dataset.target == TaskTarget::kNode && !dataset.graph_offsets.defined(),
              "parts: expected labels of nodes of one graph, {} has {} {}s", dataset.origin,
              dataset.num_targets(), name_of(TaskTargets{}, dataset.target));
  check_options(options);
  MEZZO_CHECK(parts.defined() && parts.is_cpu() && parts.scalar_type() == at::kLong &&
                  parts.dim() == 1 && parts.numel() == dataset.num_nodes && parts.numel() > 0,
              "parts: expected int64 [{}] on the CPU, got {}", dataset.num_nodes,
              parts.defined() ? data::shape_text(parts) : "an undefined tensor");
  MEZZO_CHECK(parts.min().item<std::int64_t>() >= 0, "parts: expected numbers of at least 0");
  const std::int64_t last = parts.max().item<std::int64_t>();
  MEZZO_CHECK(last < dataset.num_nodes, "parts: expected at most {} of them, got number {}",
              dataset.num_nodes, last);
  const at::Tensor empty = at::bincount(parts).eq(0).nonzero();
  MEZZO_CHECK(empty.numel() == 0, "parts: expected a node in each, part {} has none",
              empty[0].item<std::int64_t>());
  return last + 1;
}

void write_partition_file(const std::filesystem::path& folder, const PartsReport& report) {
  OrderedJson parts = OrderedJson::array();
  for (const PartSize& part : report.parts) {
    parts.push_back({{"folder", part.folder},
                     {"own_nodes", part.own_nodes},
                     {"halo_nodes", part.halo_nodes},
                     {"edges", part.edges}});
  }
  const OrderedJson object = {{"format", "mezzo parts"},
                              {"version", 1},
                              {"name", report.name},
                              {"num_nodes", report.num_nodes},
                              {"num_edges", report.num_edges},
                              {"hops", report.hops},
                              {"edge_cut", report.edge_cut},
                              {"replication", report.replication()},
                              {"parts", parts}};
  const std::string text = json_text(object);
  data::OutputFile file(folder / data::kPartitionFile);
  file.write(text.data(), text.size());
  file.close();
}

/// The folders listed in partition.json.
std::vector<std::string> part_folders(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / data::kPartitionFile;
  const std::string where = path.string();
  const auto root = nlohmann::json::parse(data::read_file(path), nullptr,
                                          /*allow_exceptions=*/false);
  const bool known = root.is_object() && root.value("format", nlohmann::json()) == "mezzo parts" &&
                     root.value("version", nlohmann::json()) == 1 && root.contains("parts") &&
                     root["parts"].is_array();
  data::require(known, where, "not a list of parts of version 1");
  std::vector<std::string> folders;
  for (const nlohmann::json& part : root["parts"]) {
    const bool has_folder =
        part.is_object() && part.contains("folder") && part["folder"].is_string();
    data::require(has_folder, where, "a part without 'folder'");
    folders.push_back(part["folder"].get<std::string>());
    const std::filesystem::path name(folders.back());
    data::require(!name.empty() && name == name.filename() && name != "." && name != "..", where,
                  "the folder of a part is '{}', expected a name in this one", folders.back());
  }
  data::require(!folders.empty(), where, "no parts");
  return folders;
}

constexpr data::FolderKind kFolderOfParts{"folder of parts", data::kPartitionFile, part_folders,
                                          &data::kMappedDataset};

}  // namespace

double PartsReport::replication() const {
  std::int64_t num_part_nodes = 0;
  for (const PartSize& part : parts) num_part_nodes += part.own_nodes + part.halo_nodes;
  return static_cast<double>(num_part_nodes) / static_cast<double>(num_nodes);
}

void check_options(const PartsOptions& options) {
  MEZZO_CHECK(options.hops >= 1 && options.hops <= kMostHops, "hops: expected 1 to {}, got {}",
              kMostHops, options.hops);
}

PartsReport write_parts(const Dataset& dataset, const at::Tensor& parts,
                        const std::filesystem::path& output, const PartsOptions& options) {
  const std::int64_t num_parts = check_parts(dataset, parts, options);
  data::PartialFolder folder(output, options.overwrite, kFolderOfParts, dataset.origin);
  data::PartWriter writer(dataset, parts, num_parts, options.hops);
  PartsReport report{.name = dataset.name,
                     .num_nodes = dataset.num_nodes,
                     .num_edges = dataset.num_edges(),
                     .hops = options.hops,
                     .edge_cut = writer.edge_cut(),
                     .parts = {}};
  for (std::int64_t index = 0; index < num_parts; ++index) {
    report.stopped = options.should_stop && options.should_stop();
    if (report.stopped) return report;
    const std::string name = fmt::format("part{}", index);
    data::PartialFolder one(folder.path() / name, /*overwrite=*/false, data::kMappedDataset,
                            dataset.origin);
    report.parts.push_back(writer.write(index, one.path()));
    report.parts.back().folder = name;
    one.commit();
  }
  write_partition_file(folder.path(), report);
  folder.commit();
  return report;
}

std::string part_for_rank(const std::string& name_or_path, std::int64_t rank,
                          std::int64_t world_size) {
  const std::filesystem::path path(name_or_path);
  if (!data::is_folder_of_parts(path)) return name_or_path;
  const std::vector<std::string> folders = part_folders(path);
  MEZZO_CHECK(
      static_cast<std::int64_t>(folders.size()) == world_size,
      "dataset: {} has {} parts, one for each process, and there {} of them; partition again "
      "(mezzo data partition -k {}) or start {} processes (mezzo launch -n {})",
      name_or_path, folders.size(), world_size == 1 ? "is 1" : fmt::format("are {}", world_size),
      world_size, folders.size(), folders.size());
  return (path / folders[static_cast<std::size_t>(rank)]).string();
}

bool data::is_folder_of_parts(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path / kPartitionFile, ignored);
}

void data::check_output_of_parts(const std::filesystem::path& output, bool overwrite,
                                 const std::string& source) {
  check_output(output, overwrite, kFolderOfParts, source);
}

}  // namespace mezzo
