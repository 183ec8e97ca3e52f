#include "mezzo/data/mapped/mapped_dataset.h"

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <fmt/ranges.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/json_file.h"
#include "mezzo/data/npy/mapped_file.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kMostFolderItems = std::int64_t{1} << 48;
constexpr at::ScalarType kFolderDtypes[] = {at::kBool,  at::kByte, at::kInt,     at::kLong,
                                            at::kFloat, at::kHalf, at::kBFloat16};
constexpr std::initializer_list<at::ScalarType> kFeatureDtypes = {at::kFloat, at::kBFloat16,
                                                                  at::kHalf};

std::string dtype_text(at::ScalarType dtype) {
  return c10::getDtypeNames(dtype).first;
}

/// Parses mezzo.json; every error contains the file and the key.
class ManifestParser {
 public:
  explicit ManifestParser(const std::filesystem::path& path)
      : where_(path.string()), root_(read_json_object(path)) {}

  FolderManifest parse() const {
    require(text(root_, "format") == "mezzo", where_, "'format' is not \"mezzo\"");
    const std::int64_t version = count(root_, "version");
    require(version == 1, where_, "version {}, this library reads 1", version);
    FolderManifest manifest;
    manifest.name = text(root_, "name");
    manifest.num_nodes = count(root_, "num_nodes");
    manifest.num_edges = count(root_, "num_edges");
    manifest.num_features = count(root_, "num_features");
    manifest.num_classes = count(root_, "num_classes");
    manifest.metric = metric();
    if (root_.contains("target")) {
      manifest.target = parse_in_file(TaskTargets{}, where_ + ": target", text(root_, "target"));
    }
    if (root_.contains("num_edge_types")) manifest.num_edge_types = count(root_, "num_edge_types");
    manifest.class_names = strings_of(member(root_, "class_names"), "class_names", where_);
    manifest.part = part();
    const nlohmann::json& arrays = member(root_, "arrays");
    require(arrays.is_object(), where_, "'arrays' is not an object");
    for (const auto& [name, one] : arrays.items()) manifest.arrays[name] = array(name, one);
    return manifest;
  }

 private:
  const nlohmann::json& member(const nlohmann::json& object, const char* key) const {
    const auto value = object.find(key);
    require(value != object.end(), where_, "'{}' is missing", key);
    return *value;
  }

  std::string text(const nlohmann::json& object, const char* key) const {
    const nlohmann::json& value = member(object, key);
    require(value.is_string(), where_, "'{}' is not a string", key);
    return value.get<std::string>();
  }

  std::int64_t number(const nlohmann::json& value, const std::string& what) const {
    require(value.is_number_integer() && value >= 0 && value <= kMostFolderItems, where_,
            "{} is not an integer of 0 to 2^48", what);
    return value.get<std::int64_t>();
  }

  std::int64_t count(const nlohmann::json& object, const char* key) const {
    return number(member(object, key), fmt::format("'{}'", key));
  }

  Metric metric() const {
    return parse_in_file(Metrics{}, where_ + ": metric", text(root_, "metric"));
  }

  std::optional<FolderPart> part() const {
    const auto part = root_.find("part");
    if (part == root_.end()) return std::nullopt;
    require(part->is_object(), where_, "'part' is not an object");
    return FolderPart{.index = count(*part, "index"),
                      .num_parts = count(*part, "num_parts"),
                      .hops = count(*part, "hops"),
                      .num_nodes = count(*part, "num_nodes"),
                      .num_edges = count(*part, "num_edges")};
  }

  FolderArray array(const std::string& name, const nlohmann::json& value) const {
    require(value.is_object(), where_, "the array '{}' is not an object", name);
    FolderArray array;
    array.file = text(value, "file");
    const std::filesystem::path file(array.file);
    require(
        !array.file.empty() && file == file.filename() && array.file != "." && array.file != "..",
        where_, "the array '{}' has the file '{}', expected a name without a folder", name,
        array.file);
    array.dtype = dtype(name, text(value, "dtype"));
    const nlohmann::json& shape = member(value, "shape");
    require(shape.is_array(), where_, "the shape of '{}' is not a list", name);
    for (const nlohmann::json& size : shape) {
      array.shape.push_back(number(size, fmt::format("a size of '{}'", name)));
    }
    return array;
  }

  at::ScalarType dtype(const std::string& name, const std::string& expected) const {
    const auto* const match =
        std::find_if(std::begin(kFolderDtypes), std::end(kFolderDtypes),
                     [&](at::ScalarType candidate) { return dtype_text(candidate) == expected; });
    require(match != std::end(kFolderDtypes), where_, "the array '{}' has the unknown dtype '{}'",
            name, expected);
    return *match;
  }

  std::string where_;
  nlohmann::json root_;
};

/// The arrays of a folder, each checked against the manifest and its own file. Records which were
/// read: an array that is never read is an error.
class FolderReader {
 public:
  FolderReader(const std::filesystem::path& folder, const FolderManifest& manifest)
      : folder_(folder), where_((folder / kManifestFile).string()), manifest_(manifest) {}

  bool has(const std::string& name) const { return manifest_.arrays.count(name) > 0; }

  std::size_t num_dimensions(const std::string& name) const {
    return manifest_.arrays.at(name).shape.size();
  }

  const std::string& where() const { return where_; }
  std::string where(const std::string& name) const { return path_of(name).string(); }

  /// A view of the mapped file. -1 in `shape` accepts any size.
  at::Tensor map(const std::string& name, std::initializer_list<at::ScalarType> dtypes,
                 const Shape& shape, bool random_reads = false) {
    const FolderArray& array = described(name, dtypes, shape);
    return in_shape(map_npy(path_of(name), array.dtype, random_reads), array, name);
  }

  /// A copy in memory, of bool, uint8 or int64.
  at::Tensor read(const std::string& name, at::ScalarType dtype, const Shape& shape) {
    const FolderArray& array = described(name, {dtype}, shape);
    const at::Tensor items = read_npy(path_of(name));
    require(items.scalar_type() == dtype, where(name), "expected {}, got {}", dtype_text(dtype),
            dtype_text(items.scalar_type()));
    return in_shape(items, array, name);
  }

  void expect_no_others() const {
    for (const auto& [name, array] : manifest_.arrays) {
      require(asked_.count(name) > 0, where_, "the array '{}' is not expected here", name);
    }
  }

 private:
  std::filesystem::path path_of(const std::string& name) const {
    return folder_ / manifest_.arrays.at(name).file;
  }

  const FolderArray& described(const std::string& name,
                               std::initializer_list<at::ScalarType> dtypes, const Shape& shape) {
    require(has(name), where_, "the array '{}' is missing", name);
    asked_.insert(name);
    const FolderArray& array = manifest_.arrays.at(name);
    std::vector<std::string> allowed;
    for (const at::ScalarType dtype : dtypes) allowed.push_back(dtype_text(dtype));
    require(std::find(dtypes.begin(), dtypes.end(), array.dtype) != dtypes.end(), where_,
            "the array '{}' is of {}, expected {}", name, dtype_text(array.dtype),
            fmt::join(allowed, " or "));
    const auto fits = [](std::int64_t got, std::int64_t expected) {
      return expected < 0 || got == expected;
    };
    require(std::equal(array.shape.begin(), array.shape.end(), shape.begin(), shape.end(), fits),
            where_, "the array '{}' has shape [{}], the counts ask for [{}]{}", name,
            fmt::join(array.shape, ", "), fmt::join(shape, ", "),
            std::count(shape.begin(), shape.end(), -1) > 0 ? ", -1 being any" : "");
    return array;
  }

  at::Tensor in_shape(const at::Tensor& items, const FolderArray& array,
                      const std::string& name) const {
    require(items.sizes() == at::IntArrayRef(array.shape), where(name),
            "its shape is {}, {} says [{}]", shape_text(items), kManifestFile,
            fmt::join(array.shape, ", "));
    return items;
  }

  std::filesystem::path folder_;
  std::string where_;
  const FolderManifest& manifest_;
  std::set<std::string> asked_;
};

/// What parts do not have.
void read_folder_structure(FolderReader& reader, Dataset& dataset) {
  const std::int64_t edges = dataset.num_edges();
  if (reader.has("edge_weights")) {
    dataset.edge_weights = reader.map("edge_weights", {at::kFloat}, {edges});
  }
  if (reader.has("edge_features")) {
    dataset.edge_features = reader.map("edge_features", {at::kFloat}, {edges, -1});
  }
  require(dataset.num_edge_types <= most_classes(edges), reader.where(),
          "num_edge_types is {}, beyond any sensible number for {} edges", dataset.num_edge_types,
          edges);
  if (reader.has("edge_types")) dataset.edge_types = reader.read("edge_types", at::kLong, {edges});
  if (reader.has("graph_offsets")) {
    dataset.graph_offsets = reader.read("graph_offsets", at::kLong, {-1});
    require(dataset.graph_offsets.numel() > 1, reader.where("graph_offsets"), "no graphs");
  }
  require(dataset.graph_offsets.defined() || dataset.target != TaskTarget::kGraph, reader.where(),
          "'target' is graph, without an array 'graph_offsets'");
}

void read_folder_features(FolderReader& reader, Dataset& dataset, std::int64_t num_features) {
  const std::int64_t nodes = dataset.num_nodes;
  if (reader.has("feature_indptr")) {
    const auto copy = [](const at::Tensor& mapped, at::ScalarType dtype) {
      return mapped.to(dtype, /*non_blocking=*/false, /*copy=*/true);
    };
    const at::Tensor indptr =
        copy(reader.map("feature_indptr", {at::kLong}, {nodes + 1}), at::kLong);
    const at::Tensor indices = copy(reader.map("feature_indices", {at::kLong}, {-1}), at::kLong);
    const at::Tensor values = reader.map("feature_values", kFeatureDtypes, {indices.numel()});
    dataset.stored_dtype = values.scalar_type();
    dataset.features = make_csr(nodes, num_features, indptr, indices, copy(values, at::kFloat),
                                reader.where("feature_indptr"));
    return;
  }
  if (!reader.has("features")) {
    require(num_features == 0, reader.where(), "{} features, but no array 'features'",
            num_features);
    return;
  }
  dataset.features = reader.map("features", kFeatureDtypes, {nodes, num_features}, true);
  dataset.is_mapped = true;
}

void read_folder_masks(FolderReader& reader, Dataset& dataset) {
  const std::int64_t targets = dataset.num_targets();
  dataset.train_masks = reader.read("train_masks", at::kBool, {targets, -1});
  const std::int64_t splits = dataset.train_masks.size(1);
  dataset.val_masks = reader.read("val_masks", at::kBool, {targets, splits});
  dataset.test_masks = reader.read("test_masks", at::kBool, {targets, splits});
}

void read_folder_links(FolderReader& reader, Dataset& dataset) {
  const std::int64_t edges = dataset.num_edges();
  require(!dataset.graph_offsets.defined() && dataset.num_classes == 1, reader.where(),
          "'target' is link, expected one class and no array 'graph_offsets'");
  dataset.labels = at::ones({edges, 1}, at::kByte);
  read_folder_masks(reader, dataset);
  if (reader.has("message_mask")) {
    dataset.message_mask = reader.read("message_mask", at::kBool, {edges});
  }
  for_each_negatives(dataset.negatives, [&](const std::string& name, at::Tensor& nodes) {
    if (reader.has(name)) nodes = reader.read(name, at::kLong, {-1, -1});
  });
}

/// num_targets: of the whole, if the folder is a part.
void read_folder_labels(FolderReader& reader, Dataset& dataset, std::int64_t num_targets,
                        const LoadOptions& options) {
  if (dataset.target == TaskTarget::kLink) return read_folder_links(reader, dataset);
  require((dataset.num_classes > 0) == reader.has("labels"), reader.where(),
          "num_classes is {}, {} an array 'labels'", dataset.num_classes,
          reader.has("labels") ? "with" : "without");
  if (!reader.has("labels")) return;
  const std::int64_t targets = dataset.num_targets();
  const std::string_view target = name_of(TaskTargets{}, dataset.target);
  const bool has_columns = reader.num_dimensions("labels") == 2;
  require(has_columns || dataset.num_classes <= most_classes(num_targets), reader.where(),
          "num_classes is {}, beyond any sensible number for {} {}s", dataset.num_classes,
          num_targets, target);
  const bool are_numbers = is_of_numbers(dataset.metric);
  dataset.labels = has_columns ? reader.read("labels", are_numbers ? at::kFloat : at::kByte,
                                             {targets, dataset.num_classes})
                               : reader.read("labels", at::kLong, {targets});
  if (!reader.has("train_masks")) {
    require(dataset.has_label().all().item<bool>(), reader.where("labels"),
            "some {}s have no label, and no masks exclude them", target);
    return set_random_split(dataset, options.split_seed);
  }
  read_folder_masks(reader, dataset);
}

DatasetPart read_folder_part(FolderReader& reader, const FolderPart& part, std::int64_t nodes) {
  return {.index = part.index,
          .num_parts = part.num_parts,
          .hops = part.hops,
          .num_nodes = part.num_nodes,
          .num_edges = part.num_edges,
          .node_ids = reader.map("node_ids", {at::kLong}, {nodes}),
          .own_mask = reader.read("own_mask", at::kBool, {nodes}),
          .in_degrees = reader.map("in_degrees", {at::kLong}, {nodes}),
          .out_degrees = reader.map("out_degrees", {at::kLong}, {nodes})};
}

}  // namespace

std::vector<std::string> files_of_manifest(const std::filesystem::path& folder) {
  const FolderManifest manifest = ManifestParser(folder / kManifestFile).parse();
  std::vector<std::string> files;
  for (const auto& [name, array] : manifest.arrays) files.push_back(array.file);
  return files;
}

Dataset read_mapped_dataset(const std::filesystem::path& folder, const LoadOptions& options) {
  refuse_named_split(options, folder.string());
  const FolderManifest manifest = ManifestParser(folder / kManifestFile).parse();
  FolderReader reader(folder, manifest);
  Dataset dataset;
  dataset.name = manifest.name;
  dataset.num_nodes = manifest.num_nodes;
  dataset.num_classes = manifest.num_classes;
  dataset.metric = manifest.metric;
  dataset.target = manifest.target;
  dataset.num_edge_types = manifest.num_edge_types;
  dataset.class_names = manifest.class_names;
  dataset.indptr = reader.map("indptr", {at::kLong}, {manifest.num_nodes + 1});
  dataset.indices = reader.map("indices", {at::kInt, at::kLong}, {manifest.num_edges});
  if (!manifest.part) read_folder_structure(reader, dataset);
  require(!manifest.part || dataset.target == TaskTarget::kNode, reader.where(),
          "it is a part, whose labels are of nodes, but 'target' is {}",
          name_of(TaskTargets{}, dataset.target));
  read_folder_features(reader, dataset, manifest.num_features);
  const std::int64_t whole = manifest.part ? manifest.part->num_nodes : dataset.num_targets();
  read_folder_labels(reader, dataset, whole, options);
  if (manifest.part) dataset.part = read_folder_part(reader, *manifest.part, dataset.num_nodes);
  reader.expect_no_others();
  return dataset;
}

extern const Format kMappedFormat = {
    "mapped dataset", {kManifestFile}, open_whole<read_mapped_dataset>};

}  // namespace mezzo::data
