#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/data/convert.h"
#include "mezzo/data/formats.h"
#include "mezzo/data/npy/npz.h"
#include "mezzo/data/parts.h"
#include "mezzo/data/readers.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWordnet = "wordnet";

/// Throws the error for a path of unknown format.
[[noreturn]] void refuse(const std::string& text) {
  const fs::path path(text);
  MEZZO_CHECK(
      !data::is_folder_of_parts(path),
      "dataset: {} holds the parts of a data set for as many processes (mezzo launch); name "
      "one, such as {}, or the whole",
      text, (path / "part0").string());
  data::require(!fs::is_directory(path), text,
                "holds no data set (expected mezzo.json, edge_index.npy and labels.npy, "
                "ind.<name>.graph, data.noun, edges.csv, metadata.yaml, or a folder of OGB, "
                "GraphSAINT, TU graphs or DGL's Reddit)");
  if (data::may_be_npz(path)) {
    detail::raise<IoError>(
        "{}: expected the arrays of a gnn-benchmark npz (adj_indptr, ...) or a "
        "heterophilous-graphs npz (node_features, ...), it has: {}",
        text, fmt::join(data::NpzFile(path).keys(), ", "));
  }
  data::require(!fs::exists(path), text,
                "not a data set: expected a file .npz, or .mtx, .txt, .edges, .el or .tsv (also "
                "as .gz); for a set of several files give the folder");
  const bool is_name = text.find_first_of("/.") == std::string::npos;
  MEZZO_CHECK(!is_name, "dataset: '{}' is neither a known name ({}) nor a file or folder here",
              text, kWordnet);
  detail::raise<IoError>("{}: no such file or folder", text);
}

/// Normalising mapped features would copy them.
void normalize_features(Dataset& dataset) {
  MEZZO_CHECK(!dataset.is_mapped,
              "normalize-features: the features of {} are mapped from a file and stay as they are; "
              "normalise them when the folder is made: mezzo data convert --normalize-features",
              dataset.origin);
  if (dataset.features.defined()) dataset.features = normalize_rows(dataset.features);
}

/// The names of the metrics for the labels of the data set.
std::string metrics_that_fit(const Dataset& dataset) {
  std::vector<std::string_view> names;
  detail::for_each(Metrics{}, [&]<class T>() {
    if (fits(T::kind, dataset.task(), dataset.num_classes)) names.push_back(T::name);
  });
  return fmt::format("{}", fmt::join(names, ", "));
}

void check(const Dataset& dataset) {
  try {
    dataset.validate();
  } catch (const InvalidArgument& fault) {
    throw IoError(dataset.origin + ": " + fault.what());
  }
}

/// The data sets at `path`; empty if it cannot be read.
std::vector<KnownDataset> datasets_at(const fs::path& path) try {
  const data::Format* const format = data::find_format(path);
  const bool is_npz = path.extension() == ".npz", is_file = fs::is_regular_file(path);
  // The name alone makes any .txt an edge list.
  if (format == nullptr ||
      (is_file && !is_npz && data::text_by_lines(path) == data::GraphText::kNone))
    return {};
  std::map<std::string, fs::path> sets = {
      {is_npz && is_file ? path.stem().string() : data::name_of_path(path), path}};
  if (format->sets != nullptr) sets = format->sets(path);
  std::vector<KnownDataset> known;
  for (const auto& [name, place] : sets) {
    known.push_back(
        {.name = name, .description = format->name, .available = true, .path = place.string()});
  }
  return known;
} catch (const std::exception&) {
  return {};  // load_dataset reports the error
}

}  // namespace

std::string data::origin_of(const std::string& name_or_path) {
  return name_or_path == kWordnet ? wordnet_folder().string() : name_or_path;
}

std::unique_ptr<data::GraphSource> data::open_source(const std::string& name_or_path,
                                                     const LoadOptions& options) {
  MEZZO_CHECK(!name_or_path.empty(), "dataset: expected a path or a name ({}), got nothing",
              kWordnet);
  return with_io_errors(name_or_path, "cannot be read", [&] {
    const std::string origin = origin_of(name_or_path);
    require(name_or_path != kWordnet || fs::exists(fs::path(origin) / "data.noun"), origin,
            "no WordNet dictionary (data.noun, ...) there; install Debian's wordnet-base, or "
            "set MEZZO_WORDNET_DIR to its folder");
    const Format* const format = find_format(origin);
    if (format == nullptr) refuse(name_or_path);
    MEZZO_CHECK(options.csv == CsvColumns() || std::string_view(format->name) == kCsvFormatName,
                "dataset: columns are named (--id, --label, --src, --dst, --weight) for a {} only; "
                "{} is: {}",
                kCsvFormatName, name_or_path, format->name);
    std::unique_ptr<GraphSource> source = format->open(origin, options);
    if (Dataset* const dataset = source->dataset()) {
      dataset->origin = origin;
      require_labels(*dataset, options);
      check(*dataset);
    }
    return source;
  });
}

void data::check_task(Task task, std::optional<Task> wanted, const std::string& origin) {
  MEZZO_CHECK(!wanted || *wanted == task, "task: expected {}, for which {} has labels, got {}",
              name_of(Tasks{}, task), origin, name_of(Tasks{}, *wanted));
}

Dataset load_dataset(const std::string& name_or_path, const LoadOptions& options) {
  const bool is_link = options.task && options.task->target == TaskTarget::kLink;
  LoadOptions read_options = options;
  read_options.labels_optional = read_options.labels_optional || is_link;
  const std::unique_ptr<data::GraphSource> source = data::open_source(name_or_path, read_options);
  return data::with_io_errors(name_or_path, "cannot be read", [&] {
    Dataset dataset;
    if (source->dataset() != nullptr) {
      dataset = std::move(*source->dataset());
    } else {
      dataset = data::read_all(*source, read_options, name_or_path);
      check(dataset);
    }
    if (dataset.tasks.empty() && dataset.labels.defined()) dataset.tasks = {dataset.task()};
    if (is_link || dataset.target == TaskTarget::kLink) data::set_links(dataset, options);
    if (dataset.labels.defined()) data::check_task(dataset.task(), options.task, name_or_path);
    if (options.metric && dataset.labels.defined()) {
      MEZZO_CHECK(fits(*options.metric, dataset.task(), dataset.num_classes),
                  "metric: {} does not fit the task {} of {} classes, expected one of {}",
                  metric_name(*options.metric), name_of(Tasks{}, dataset.task()),
                  dataset.num_classes, metrics_that_fit(dataset));
      dataset.metric = *options.metric;
    }
    if (options.normalize_features) normalize_features(dataset);
    return dataset;
  });
}

std::vector<KnownDataset> list_datasets(const std::string& directory) {
  const fs::path folder = data::wordnet_folder();
  const bool available = fs::exists(folder / "data.noun");
  std::vector<KnownDataset> datasets = {
      {.name = kWordnet,
       .description = "WordNet 3.0: 117,659 synsets joined by their pointers, words of the "
                      "glosses, 45 lexicographer files",
       .available = available,
       .path = available ? folder.string() : "install Debian's wordnet-base"}};
  if (directory.empty()) return datasets;
  data::require(fs::is_directory(directory), directory, "no such folder");
  std::vector<fs::path> paths;
  data::with_io_errors(directory, "cannot be read", [&] {
    for (const auto& entry : fs::directory_iterator(directory)) paths.push_back(entry.path());
  });
  std::sort(paths.begin(), paths.end());
  paths.insert(paths.begin(), fs::path(directory));
  for (const fs::path& path : paths) {
    const std::vector<KnownDataset> sets = datasets_at(path);
    datasets.insert(datasets.end(), sets.begin(), sets.end());
  }
  return datasets;
}

}  // namespace mezzo
