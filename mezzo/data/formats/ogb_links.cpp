// The split of a set of links in OGB.
#include <algorithm>
#include <map>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/data/formats/ogb.h"
#include "mezzo/data/listed_links.h"
#include "mezzo/data/pickle/torch_file.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

/// The arrays of one role: train, valid or test.
class LinkArrays {
 public:
  /// prefix: "train/" of the arrays of a split_dict.pt, else "".
  LinkArrays(const std::map<std::string, at::Tensor>& arrays, const std::string& prefix,
             std::string where)
      : where_(std::move(where)) {
    for (const auto& [name, array] : arrays) {
      if (name.starts_with(prefix)) arrays_[name.substr(prefix.size())] = array;
    }
  }

  ListedPairs pairs() const {
    ListedPairs links;
    if (has("edge")) {
      links = pairs_of_columns(arrays_.at("edge"), where("edge"));
      if (has("edge_neg")) {
        const ListedPairs others = pairs_of_columns(arrays_.at("edge_neg"), where("edge_neg"));
        links.negatives.pairs = at::stack({others.src, others.dst});
      }
    } else if (has("source_node")) {
      links = {.src = ids("source_node"), .dst = ids("target_node")};
      links.negatives.dst = ids_if_any("target_node_neg");
    } else {
      std::vector<std::string> names;
      for (const auto& [name, array] : arrays_) names.push_back(name);
      require(has("head"), where_, "expected the arrays edge, source_node or head, it has: {}",
              fmt::join(names, ", "));
      links = {.src = ids("head"), .dst = ids("tail"), .types = ids("relation")};
      links.negatives = {.src = ids_if_any("head_neg"), .dst = ids_if_any("tail_neg")};
    }
    if (has("weight"))
      links.weights = as_float32(arrays_.at("weight"), where("weight")).reshape(-1);
    return links;
  }

 private:
  bool has(const std::string& name) const { return arrays_.count(name) > 0; }
  std::string where(const std::string& name) const { return where_ + ": " + name; }

  at::Tensor ids(const std::string& name) const {
    require(has(name), where_, "the array {} is missing", name);
    return as_int64(arrays_.at(name), where(name));
  }
  at::Tensor ids_if_any(const std::string& name) const {
    return has(name) ? ids(name) : at::Tensor();
  }

  std::string where_;
  std::map<std::string, at::Tensor> arrays_;
};

ListedSplit read_link_split(const fs::path& folder) {
  const fs::path all = folder / "split_dict.pt";
  if (fs::exists(all)) {
    const std::map<std::string, at::Tensor> arrays = read_torch_file(all);
    const auto of = [&](const std::string& role) {
      return LinkArrays(arrays, role + "/", all.string() + ": " + role).pairs();
    };
    return {.train = of("train"), .val = of("valid"), .test = of("test")};
  }
  const auto of = [&](const char* file) {
    return LinkArrays(read_torch_file(folder / file), "", (folder / file).string()).pairs();
  };
  return {.train = of("train.pt"), .val = of("valid.pt"), .test = of("test.pt")};
}

/// Sets the types of the edges, and their number by those of the links too.
void set_types(Dataset& dataset, const at::Tensor& types, const ListedSplit& split,
               const std::string& where) {
  if (!types.defined()) return;
  std::int64_t most = types.numel() > 0 ? types.max().item<std::int64_t>() : 0;
  for (const ListedPairs* links : {&split.train, &split.val, &split.test}) {
    const at::Tensor& of_links = links->types;
    if (of_links.defined() && of_links.numel() > 0) {
      most = std::max(most, of_links.max().item<std::int64_t>());
    }
  }
  require(most < most_classes(dataset.num_edges()), where,
          "an edge of type {}, beyond any sensible number of types", most);
  dataset.edge_types = types;
  dataset.num_edge_types = most + 1;
}

}  // namespace

bool is_ogb_link_set(const fs::path& folder) {
  const auto has_label = [&](const char* file) { return fs::exists(folder / "raw" / file); };
  if (has_label("node-label.csv.gz") || has_label("node-label.npz") ||
      has_label("graph-label.csv.gz") || has_label("graph-label.npz") ||
      !fs::is_directory(folder / "split")) {
    return false;
  }
  const fs::directory_iterator types(folder / "split");
  return std::any_of(begin(types), end(types), [](const fs::directory_entry& type) {
    return fs::exists(type.path() / "train.pt") || fs::exists(type.path() / "split_dict.pt");
  });
}

Dataset read_ogb_links(OgbSource& graph, const fs::path& folder, const LoadOptions& options) {
  LoadOptions graph_options = options;
  graph_options.labels_optional = true;
  graph.leave_out_labels();
  const fs::path split_folder = *graph.split_folder();
  const ListedSplit split = read_link_split(split_folder);
  Dataset dataset = read_all(graph, graph_options, folder.string());
  set_types(dataset, graph.edge_types(), split, split_folder.string());
  add_links(dataset, split, /*messages=*/true, split_folder.string());
  dataset.split_names = graph.split_names();
  return dataset;
}

}  // namespace mezzo::data
