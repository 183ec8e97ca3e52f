#include "mezzo/data/parts.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <nlohmann/json.hpp>

#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/data/csr_rows.h"
#include "mezzo/data/folder_writer.h"
#include "mezzo/data/mezzo_folder.h"
#include "mezzo/data/readers.h"

namespace mezzo {
namespace {

constexpr std::int64_t kPartsItemsPerSlice = std::int64_t{1} << 22;  // of features copied at a time
constexpr std::uint8_t kNotReached = 255;
constexpr std::int64_t kMostHops = 254;

/// The rows by destination of a whole data set, whichever way it has its edges.
class WholeRows {
 public:
  explicit WholeRows(const Dataset& dataset) {
    if (dataset.indptr.defined()) {
      indptr_ = dataset.indptr.contiguous();
      indices_ = dataset.indices.contiguous();
    } else {
      set_sorted(dataset);
    }
    begins_ = indptr_.const_data_ptr<std::int64_t>();
    if (indices_.scalar_type() == at::kInt) {
      narrow_ = indices_.const_data_ptr<std::int32_t>();
    } else {
      wide_ = indices_.const_data_ptr<std::int64_t>();
    }
  }

  std::int64_t num_nodes() const { return indptr_.numel() - 1; }
  std::int64_t num_edges() const { return indices_.numel(); }
  at::ScalarType id_dtype() const { return indices_.scalar_type(); }
  std::int64_t begin(std::int64_t node) const { return begins_[node]; }
  std::int64_t end(std::int64_t node) const { return begins_[node + 1]; }
  std::int64_t source(std::int64_t slot) const {
    return narrow_ != nullptr ? narrow_[slot] : wide_[slot];
  }

 private:
  void set_sorted(const Dataset& dataset) {
    at::Tensor order = at::argsort(dataset.src, /*stable=*/true, 0, /*descending=*/false);
    order = order.index_select(
        0, at::argsort(dataset.dst.index_select(0, order), /*stable=*/true, 0, false));
    const std::int64_t most = std::max(dataset.num_nodes, dataset.num_edges());
    const bool narrow = most <= std::numeric_limits<std::int32_t>::max();
    indices_ = dataset.src.index_select(0, order).to(narrow ? at::kInt : at::kLong);
    indptr_ = at::zeros({dataset.num_nodes + 1}, at::kLong);
    indptr_.narrow(0, 1, dataset.num_nodes)
        .copy_(at::bincount(dataset.dst, {}, dataset.num_nodes).cumsum(0));
  }

  at::Tensor indptr_, indices_;
  const std::int64_t* begins_ = nullptr;
  const std::int32_t* narrow_ = nullptr;
  const std::int64_t* wide_ = nullptr;
};

/// Writes the parts of one data set.
class PartWriter {
 public:
  PartWriter(const Dataset& dataset, const at::Tensor& parts, std::int64_t num_parts,
             std::int64_t hops)
      : dataset_(dataset),
        rows_(dataset),
        parts_(parts.contiguous()),
        part_(parts_.const_data_ptr<std::int64_t>()),
        num_parts_(num_parts),
        hops_(hops),
        distance_(static_cast<std::size_t>(rows_.num_nodes())),
        place_(static_cast<std::size_t>(rows_.num_nodes())),
        out_degrees_(at::zeros({rows_.num_nodes()}, at::kLong)) {
    auto* out_degree = out_degrees_.mutable_data_ptr<std::int64_t>();
    for (std::int64_t node = 0; node < rows_.num_nodes(); ++node) {
      for (std::int64_t slot = rows_.begin(node); slot < rows_.end(node); ++slot) {
        ++out_degree[rows_.source(slot)];
        edge_cut_ += part_[rows_.source(slot)] != part_[node] ? 1 : 0;
      }
    }
  }

  std::int64_t edge_cut() const { return edge_cut_; }

  PartSize write(std::int64_t index, const std::filesystem::path& folder) {
    folder_ = folder;
    manifest_ = {.name = dataset_.name,
                 .num_features = dataset_.num_features(),
                 .num_classes = dataset_.num_classes,
                 .metric = dataset_.metric,
                 .class_names = dataset_.class_names};
    manifest_.part = data::FolderPart{.index = index,
                                      .num_parts = num_parts_,
                                      .hops = hops_,
                                      .num_nodes = rows_.num_nodes(),
                                      .num_edges = rows_.num_edges()};
    reach(index);
    number_nodes();
    write_rows();
    write_part_arrays(index);
    write_features();
    write_labels();
    data::write_manifest(folder_, manifest_);
    data::read_mezzo_folder(folder_, {}).validate();
    const std::int64_t own = own_.sum().item<std::int64_t>();
    return {.folder = {},
            .own_nodes = own,
            .halo_nodes = manifest_.num_nodes - own,
            .edges = manifest_.num_edges};
  }

 private:
  void save(const std::string& name, const at::Tensor& items) {
    data::NpyWriter writer(folder_, name + ".npy", items.scalar_type(), items.sizes().vec());
    writer.append(items.contiguous());
    manifest_.arrays[name] = writer.finish();
  }

  std::uint8_t& distance(std::int64_t node) { return distance_[static_cast<std::size_t>(node)]; }

  /// How many edges each node is away from the part's own, up to hops_.
  void reach(std::int64_t index) {
    std::vector<std::int64_t> frontier, next;
    for (std::int64_t node = 0; node < rows_.num_nodes(); ++node) {
      distance(node) = part_[node] == index ? 0 : kNotReached;
      if (distance(node) == 0) frontier.push_back(node);
    }
    for (std::int64_t hop = 1; hop <= hops_; ++hop) {
      next.clear();
      for (const std::int64_t node : frontier) {
        for (std::int64_t slot = rows_.begin(node); slot < rows_.end(node); ++slot) {
          const std::int64_t source = rows_.source(slot);
          if (distance(source) != kNotReached) continue;
          distance(source) = static_cast<std::uint8_t>(hop);
          next.push_back(source);
        }
      }
      frontier.swap(next);
    }
  }

  /// The nodes of the part, ascending as in the whole.
  void number_nodes() {
    std::int64_t count = 0;
    for (std::int64_t node = 0; node < rows_.num_nodes(); ++node) {
      if (distance(node) != kNotReached) place_[static_cast<std::size_t>(node)] = count++;
    }
    manifest_.num_nodes = count;
    nodes_ = at::empty({count}, at::kLong);
    auto* nodes = nodes_.mutable_data_ptr<std::int64_t>();
    for (std::int64_t node = 0; node < rows_.num_nodes(); ++node) {
      if (distance(node) != kNotReached) *nodes++ = node;
    }
  }

  /// Hands the sources of the part's row of `node` to `take`. A node at the rim keeps its loops, so
  /// that every node has as many of them as in the whole.
  template <class Take>
  void row(std::int64_t node, const Take& take) {
    const bool rim = distance(node) == hops_;
    for (std::int64_t slot = rows_.begin(node); slot < rows_.end(node); ++slot) {
      const std::int64_t source = rows_.source(slot);
      if (!rim || source == node) take(source);
    }
  }

  void write_rows() {
    const at::Tensor indptr = at::zeros({manifest_.num_nodes + 1}, at::kLong);
    auto* begins = indptr.mutable_data_ptr<std::int64_t>();
    const auto* nodes = nodes_.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < manifest_.num_nodes; ++i) {
      begins[i + 1] = begins[i];
      row(nodes[i], [&](std::int64_t /*source*/) { ++begins[i + 1]; });
    }
    manifest_.num_edges = begins[manifest_.num_nodes];
    save("indptr", indptr);
    // As wide as in the whole, whose degrees the ids also hold.
    if (rows_.id_dtype() == at::kInt) {
      write_sources<std::int32_t>();
    } else {
      write_sources<std::int64_t>();
    }
  }

  template <class Id>
  void write_sources() {
    data::NpyPlaces places(folder_, "indices.npy", rows_.id_dtype(), manifest_.num_edges);
    Id* next = places.items<Id>();
    const auto* nodes = nodes_.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < manifest_.num_nodes; ++i) {
      row(nodes[i], [&](std::int64_t source) {
        *next++ = static_cast<Id>(place_[static_cast<std::size_t>(source)]);
      });
    }
    manifest_.arrays["indices"] = places.finish(manifest_.num_edges);
  }

  void write_part_arrays(std::int64_t index) {
    own_ = parts_.index_select(0, nodes_).eq(index);
    const at::Tensor in_degrees = at::empty({manifest_.num_nodes}, at::kLong);
    auto* in_degree = in_degrees.mutable_data_ptr<std::int64_t>();
    const auto* nodes = nodes_.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < manifest_.num_nodes; ++i) {
      in_degree[i] = rows_.end(nodes[i]) - rows_.begin(nodes[i]);
    }
    save("node_ids", nodes_);
    save("own_mask", own_);
    save("in_degrees", in_degrees);
    save("out_degrees", out_degrees_.index_select(0, nodes_));
  }

  void write_features() {
    const at::Tensor& features = dataset_.features;
    if (manifest_.num_features == 0) return;
    if (features.layout() == at::kSparseCsr) {
      const at::Tensor rows = data::csr_rows(features, nodes_);
      save("feature_indptr", rows.crow_indices());
      save("feature_indices", rows.col_indices());
      save("feature_values", rows.values());
      return;
    }
    const std::int64_t width = manifest_.num_features;
    data::NpyWriter writer(folder_, "features.npy", features.scalar_type(),
                           {manifest_.num_nodes, width});
    const std::int64_t slice = std::max<std::int64_t>(kPartsItemsPerSlice / width, 1);
    for (std::int64_t first = 0; first < manifest_.num_nodes; first += slice) {
      const std::int64_t count = std::min(slice, manifest_.num_nodes - first);
      writer.append(features.index_select(0, nodes_.narrow(0, first, count)).contiguous());
    }
    manifest_.arrays["features"] = writer.finish();
  }

  void write_labels() {
    if (!dataset_.labels.defined()) return;
    save("labels", dataset_.labels.index_select(0, nodes_));
    const at::Tensor own = own_.unsqueeze(1);
    save("train_masks", dataset_.train_masks.index_select(0, nodes_).logical_and(own));
    save("val_masks", dataset_.val_masks.index_select(0, nodes_).logical_and(own));
    save("test_masks", dataset_.test_masks.index_select(0, nodes_).logical_and(own));
  }

  const Dataset& dataset_;
  WholeRows rows_;
  at::Tensor parts_;
  const std::int64_t* part_;
  std::int64_t num_parts_, hops_;
  std::vector<std::uint8_t> distance_;  // of each node of the whole from the part being written
  std::vector<std::int64_t> place_;     // of each node of the whole in that part
  at::Tensor out_degrees_;              // int64, of the whole
  std::int64_t edge_cut_ = 0;
  std::filesystem::path folder_;
  data::FolderManifest manifest_;
  at::Tensor nodes_, own_;  // int64 and bool, of the part being written
};

/// Returns the number of parts.
std::int64_t check_parts(const Dataset& dataset, const at::Tensor& parts,
                         const PartsOptions& options) {
  MEZZO_CHECK(!dataset.part, "parts: {} is a part of a data set already; cut the whole",
              dataset.origin);
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

/// The folders that partition.json names.
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
    const bool named = part.is_object() && part.contains("folder") && part["folder"].is_string();
    data::require(named, where, "a part without 'folder'");
    folders.push_back(part["folder"].get<std::string>());
    const std::filesystem::path name(folders.back());
    data::require(!name.empty() && name == name.filename() && name != "." && name != "..", where,
                  "the folder of a part is '{}', expected a name in this one", folders.back());
  }
  data::require(!folders.empty(), where, "no parts");
  return folders;
}

constexpr data::FolderKind kFolderOfParts{"folder of parts", data::kPartitionFile, part_folders,
                                          &data::kMezzoFolder};

}  // namespace

double PartsReport::replication() const {
  std::int64_t held = 0;
  for (const PartSize& part : parts) held += part.own_nodes + part.halo_nodes;
  return static_cast<double>(held) / static_cast<double>(num_nodes);
}

void check_options(const PartsOptions& options) {
  MEZZO_CHECK(options.hops >= 1 && options.hops <= kMostHops, "hops: expected 1 to {}, got {}",
              kMostHops, options.hops);
}

PartsReport write_parts(const Dataset& dataset, const at::Tensor& parts,
                        const std::filesystem::path& output, const PartsOptions& options) {
  const std::int64_t num_parts = check_parts(dataset, parts, options);
  data::PartialFolder folder(output, options.overwrite, kFolderOfParts, dataset.origin);
  PartWriter writer(dataset, parts, num_parts, options.hops);
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
    data::PartialFolder one(folder.path() / name, /*overwrite=*/false, data::kMezzoFolder,
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
  MEZZO_CHECK(static_cast<std::int64_t>(folders.size()) == world_size,
              "dataset: {} has {} parts, one for each process, and there {} of them; cut it anew "
              "(mezzo data partition -k {}) or start {} processes (mezzo launch -n {})",
              name_or_path, folders.size(),
              world_size == 1 ? "is 1" : fmt::format("are {}", world_size), world_size,
              folders.size(), folders.size());
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
