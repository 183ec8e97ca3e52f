#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <new>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include "mezzo/data/convert.h"
#include "mezzo/data/mapped/mapped_dataset.h"
#include "mezzo/data/parts.h"
#include "mezzo/data/readers.h"
#include "mezzo/data/source/graph_source.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWordnet = "wordnet";

using Read = std::function<Dataset(const LoadOptions&)>;
using Open = std::function<std::unique_ptr<data::GraphSource>(const LoadOptions&)>;

/// What a path holds, told from the names of its files alone.
struct Found {
  std::string kind;  // for people
  Read read;
  Open open = {};  // where it can be streamed
};

bool is_neutral(const fs::path& folder) {
  return fs::exists(folder / "edge_index.npy") || fs::exists(folder / "labels.npy");
}

Found planetoid_set(const fs::path& folder, const std::string& name) {
  return {"Planetoid pickles",
          [=](const LoadOptions& options) { return data::read_planetoid(folder, name, options); }};
}

/// Any member of `sets` but for the case of several, which is the caller's to choose from.
Found only_planetoid_set(const fs::path& folder, const std::vector<std::string>& sets) {
  MEZZO_CHECK(sets.size() == 1, "dataset: {} holds the Planetoid sets {}; name one, such as {}",
              folder.string(), fmt::join(sets, ", "), (folder / ("ind." + sets[0])).string());
  return planetoid_set(folder, sets[0]);
}

/// Whether `path` is of a format that is read piece by piece.
bool is_streamed(const fs::path& path) {
  return data::open_source(path, {}) != nullptr;
}

Found streamed_set(const fs::path& path) {
  const Open open = [=](const LoadOptions& options) { return data::open_source(path, options); };
  const Read read = [=](const LoadOptions& options) {
    return data::read_all(*open(options), options, path.string());
  };
  return {"streamed data set", read, open};
}

Found recognise_folder(const fs::path& folder) {
  MEZZO_CHECK(
      !data::is_folder_of_parts(folder),
      "dataset: {} holds the parts of a data set for as many processes (mezzo launch); name "
      "one, such as {}, or the whole",
      folder.string(), (folder / "part0").string());
  if (data::is_mezzo_folder(folder)) {
    return {"Mezzo folder",
            [=](const LoadOptions& options) { return data::read_mezzo_folder(folder, options); }};
  }
  if (is_neutral(folder)) {
    return {"neutral folder",
            [=](const LoadOptions& options) { return data::read_neutral(folder, options); }};
  }
  if (fs::exists(folder / "data.noun")) {
    return {"WordNet dictionary",
            [=](const LoadOptions& options) { return data::read_wordnet(folder, options); }};
  }
  const std::vector<std::string> sets = data::planetoid_names(folder);
  if (!sets.empty()) return only_planetoid_set(folder, sets);
  data::require(is_streamed(folder), folder.string(),
                "holds no data set (expected mezzo.json, edge_index.npy and labels.npy, "
                "ind.<name>.graph, data.noun, edges.csv, metadata.yaml, or a folder of OGB, "
                "GraphSAINT or DGL's Reddit)");
  return streamed_set(folder);
}

Dataset read_npz(const fs::path& path, const LoadOptions& options) {
  const data::NpzFile file(path);
  if (file.contains("adj_indptr")) return data::read_gnn_benchmark(file, options);
  if (file.contains("node_features")) return data::read_heterophilous(file, options);
  detail::raise<IoError>(
      "{}: expected the arrays of a gnn-benchmark npz (adj_indptr, ...) or a heterophilous-graphs "
      "npz (node_features, ...), it has: {}",
      path.string(), fmt::join(file.keys(), ", "));
}

/// Whether a regular file may be an npz file: by its name, or by its first bytes. One that cannot
/// be opened may be, so that its reader says why.
bool may_be_npz(const fs::path& path) {
  if (path.extension() == ".npz") return true;
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return true;
  char start[2] = {};
  file.read(start, 2);
  return start[0] == 'P' && start[1] == 'K';
}

Found recognise_path(const std::string& text) {
  const fs::path path(text);
  if (fs::is_directory(path)) return recognise_folder(path);
  if (fs::is_regular_file(path) && path.extension() != ".npz" && is_streamed(path)) {
    return streamed_set(path);
  }
  if (fs::exists(path)) {
    data::require(!fs::is_regular_file(path) || may_be_npz(path), text,
                  "not a data set: expected a file .npz, or .mtx, .txt, .edges, .el or .tsv (also "
                  "as .gz); a set of several files is named by its folder");
    return {"npz", [=](const LoadOptions& options) { return read_npz(path, options); }};
  }
  const std::string file = path.filename().string();
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (file.starts_with("ind.") && fs::is_directory(folder)) {
    const std::vector<std::string> sets = data::planetoid_names(folder);
    if (std::count(sets.begin(), sets.end(), file.substr(4)) > 0) {
      return planetoid_set(folder, file.substr(4));
    }
  }
  const bool is_name = text.find_first_of("/.") == std::string::npos;
  MEZZO_CHECK(!is_name, "dataset: '{}' is neither a known name ({}) nor a file or folder here",
              text, kWordnet);
  detail::raise<IoError>("{}: no such file or folder", text);
}

Dataset read_known_wordnet(const LoadOptions& options) {
  const fs::path folder = data::wordnet_folder();
  data::require(fs::exists(folder / "data.noun"), folder.string(),
                "no WordNet dictionary (data.noun, ...) there; install Debian's wordnet-base, or "
                "set MEZZO_WORDNET_DIR to its folder");
  return data::read_wordnet(folder, options);
}

/// Which mapped features would have to be copied for.
void normalize_features(Dataset& dataset) {
  MEZZO_CHECK(!dataset.is_mapped,
              "normalize-features: the features of {} are mapped from a file and stay as they are; "
              "normalise them when the folder is made: mezzo data convert --normalize-features",
              dataset.origin);
  if (dataset.features.defined()) dataset.features = normalize_rows(dataset.features);
}

Dataset read_and_check(const std::string& text, const LoadOptions& options) {
  Dataset dataset =
      text == kWordnet ? read_known_wordnet(options) : recognise_path(text).read(options);
  dataset.origin = data::origin_of(text);
  if (dataset.num_classes == 0) {
    data::require(options.labels_optional, dataset.origin,
                  "has no labels, which are needed here (mezzo predict, bench, data info, data "
                  "convert and data partition do without)");
    dataset.labels = dataset.train_masks = dataset.val_masks = dataset.test_masks = at::Tensor();
  }
  try {
    dataset.validate();
  } catch (const InvalidArgument& fault) {
    throw IoError(dataset.origin + ": " + fault.what());
  }
  if (options.normalize_features) normalize_features(dataset);
  return dataset;
}

/// What `act` does; whatever goes wrong with the bytes of `text` becomes an IoError that names it.
template <class Act>
auto with_io_errors(const std::string& text, const Act& act) {
  try {
    return act();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw IoError(text + ": does not fit in memory");
  } catch (const c10::Error& error) {
    throw IoError(text + ": " + data::libtorch_fault("cannot be read", error));
  } catch (const std::exception& error) {
    throw IoError(text + ": cannot be read: " + error.what());
  }
}

KnownDataset describe(const std::string& name, const std::string& kind, const fs::path& path) {
  return {.name = name, .description = kind, .available = true, .path = path.string()};
}

/// The data set in one file, none if it is something else.
std::vector<KnownDataset> describe_file(const fs::path& path) {
  if (path.extension() == ".npz") {
    const data::NpzFile file(path);
    const std::string name = path.stem().string();
    if (file.contains("adj_indptr")) return {describe(name, "gnn-benchmark npz", path)};
    if (file.contains("node_features")) return {describe(name, "heterophilous-graphs npz", path)};
  } else if (is_streamed(path) && data::is_graph_text(path)) {
    return {describe(path.filename().string(), "file that 'mezzo data convert' reads", path)};
  }
  return {};
}

/// The data sets directly in `path`, none if it is something else.
std::vector<KnownDataset> describe_folder(const fs::path& path) {
  const std::string name = data::name_of_path(path);
  if (data::is_mezzo_folder(path)) return {describe(name, "Mezzo folder", path)};
  if (is_neutral(path)) return {describe(name, "neutral folder", path)};
  if (fs::exists(path / "data.noun")) return {describe(name, "WordNet dictionary", path)};
  std::vector<KnownDataset> found;
  for (const std::string& set : data::planetoid_names(path)) {
    found.push_back(describe(set, "Planetoid pickles", path / ("ind." + set)));
  }
  if (found.empty() && is_streamed(path)) {
    return {describe(name, "folder that 'mezzo data convert' reads", path)};
  }
  return found;
}

/// What `path` holds, file or folder; nothing where it cannot be read.
std::vector<KnownDataset> describe_path(const fs::path& path) {
  try {
    if (fs::is_directory(path)) return describe_folder(path);
    if (fs::is_regular_file(path)) return describe_file(path);
  } catch (const std::exception&) {
    // A list tells what there is to read; load_dataset says what is wrong with the rest.
  }
  return {};
}

}  // namespace

Dataset load_dataset(const std::string& name_or_path, const LoadOptions& options) {
  MEZZO_CHECK(!name_or_path.empty(), "dataset: expected a path or a name ({}), got nothing",
              kWordnet);
  return with_io_errors(name_or_path, [&] { return read_and_check(name_or_path, options); });
}

std::string data::origin_of(const std::string& name_or_path) {
  return name_or_path == kWordnet ? wordnet_folder().string() : name_or_path;
}

std::unique_ptr<data::GraphSource> data::open_streamed(const std::string& name_or_path,
                                                       const LoadOptions& options) {
  if (name_or_path == kWordnet) return nullptr;
  return with_io_errors(name_or_path, [&]() -> std::unique_ptr<GraphSource> {
    const Found found = recognise_path(name_or_path);
    return found.open ? found.open(options) : nullptr;
  });
}

std::vector<KnownDataset> list_datasets(const std::string& directory) {
  const fs::path folder = data::wordnet_folder();
  const bool available = fs::exists(folder / "data.noun");
  std::vector<KnownDataset> found = {
      {.name = kWordnet,
       .description = "WordNet 3.0: 117,659 synsets joined by their pointers, words of the "
                      "glosses, 45 lexicographer files",
       .available = available,
       .path = available ? folder.string() : "install Debian's wordnet-base"}};
  if (directory.empty()) return found;
  data::require(fs::is_directory(directory), directory, "no such folder");
  std::vector<fs::path> paths;
  with_io_errors(directory, [&] {
    for (const auto& entry : fs::directory_iterator(directory)) paths.push_back(entry.path());
  });
  std::sort(paths.begin(), paths.end());
  paths.insert(paths.begin(), fs::path(directory));
  for (const fs::path& path : paths) {
    const std::vector<KnownDataset> sets = describe_path(path);
    found.insert(found.end(), sets.begin(), sets.end());
  }
  return found;
}

}  // namespace mezzo
