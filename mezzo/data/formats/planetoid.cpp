#include <algorithm>
#include <charconv>
#include <map>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/pickle/pickle.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNumVal = 500;

struct Part {
  std::string where;
  std::string bytes;
};

/// The arrays of one set, before they are combined.
struct Parts {
  at::Tensor allx, tx;         // sparse CSR
  at::Tensor ally, ty;         // int64, the class of each row
  std::int64_t num_train = 0;  // rows of y
  std::int64_t num_classes = 0;
  PickledGraph graph;
  std::vector<std::int64_t> test_ids;  // row i of tx is node test_ids[i]
  std::string graph_where, test_where;
};

Part read_part(const fs::path& folder, const std::string& name, const char* part) {
  const fs::path path = folder / fmt::format("ind.{}.{}", name, part);
  return {path.string(), read_file(path)};
}

at::Tensor one_hot_rows(const Part& part) {
  const at::Tensor rows = as_int64(unpickle_array(part.bytes, part.where), part.where);
  require(rows.dim() == 2 && rows.size(1) > 0, part.where, "expected shape [rows, C], got {}",
          shape_text(rows));
  const bool bits = rows.ge(0).all().item<bool>() && rows.le(1).all().item<bool>();
  require(bits && rows.sum(1).le(1).all().item<bool>(), part.where,
          "expected rows of zeros with at most one 1");
  return rows;
}

std::vector<std::int64_t> parse_ids(const Part& part) {
  std::vector<std::int64_t> ids;
  const char* position = part.bytes.data();
  const char* const end = position + part.bytes.size();
  while (true) {
    position =
        std::find_if(position, end, [](char c) { return c != '\n' && c != '\r' && c != ' '; });
    if (position == end) break;
    std::int64_t id = 0;
    const auto [stop, error] = std::from_chars(position, end, id);
    const bool ends = stop == end || *stop == '\n' || *stop == '\r' || *stop == ' ';
    require(error == std::errc{} && ends, part.where, "expected one node id a line, after {} ids",
            ids.size());
    ids.push_back(id);
    position = stop;
  }
  return ids;
}

Parts read_parts(const fs::path& folder, const std::string& name) {
  const auto read = [&](const char* part) { return read_part(folder, name, part); };
  Parts parts;
  const Part allx = read("allx"), tx = read("tx"), ally = read("ally"), ty = read("ty"),
             y = read("y"), graph = read("graph"), test = read("test.index");
  parts.allx = unpickle_csr(allx.bytes, allx.where);
  parts.tx = unpickle_csr(tx.bytes, tx.where);
  require(parts.allx.size(1) == parts.tx.size(1), tx.where, "{} features, allx has {}",
          parts.tx.size(1), parts.allx.size(1));
  const at::Tensor ally_rows = one_hot_rows(ally);
  const at::Tensor ty_rows = one_hot_rows(ty);
  const at::Tensor y_rows = one_hot_rows(y);
  parts.num_classes = ally_rows.size(1);
  require(ally_rows.size(0) == parts.allx.size(0), ally.where, "{} rows, allx has {}",
          ally_rows.size(0), parts.allx.size(0));
  require(ty_rows.size(0) == parts.tx.size(0) && ty_rows.size(1) == parts.num_classes, ty.where,
          "shape {}, expected [{}, {}]", shape_text(ty_rows), parts.tx.size(0), parts.num_classes);
  parts.num_train = y_rows.size(0);
  require(parts.num_train <= ally_rows.size(0) &&
              at::equal(y_rows, ally_rows.narrow(0, 0, parts.num_train)),
          y.where, "its rows are not the first rows of ally");
  parts.ally = ally_rows.argmax(1);
  parts.ty = ty_rows.argmax(1);
  parts.graph = unpickle_graph(graph.bytes, graph.where);
  parts.graph_where = graph.where;
  parts.test_ids = parse_ids(test);
  parts.test_where = test.where;
  return parts;
}

/// The number of nodes; checks that the test ids are distinct and follow the rows of allx.
std::int64_t count_nodes(const Parts& parts) {
  const std::int64_t first = parts.allx.size(0);
  const auto count = static_cast<std::int64_t>(parts.test_ids.size());
  require(count == parts.tx.size(0), parts.test_where, "{} ids for the {} rows of tx", count,
          parts.tx.size(0));
  std::vector<std::int64_t> sorted = parts.test_ids;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  require(twice == sorted.end(), parts.test_where, "node {} occurs twice",
          twice == sorted.end() ? 0 : *twice);
  require(sorted.empty() || sorted.front() >= first, parts.test_where,
          "node {} is one of the {} rows of allx", sorted.empty() ? 0 : sorted.front(), first);
  // The graph has a key for each node, so it bounds the ids that test.index may leave out.
  const std::int64_t limit = first + count + parts.graph.num_nodes;
  require(sorted.empty() || sorted.back() < limit, parts.test_where,
          "node {} is beyond the {} nodes that the files can hold",
          sorted.empty() ? 0 : sorted.back(), limit);
  return std::max(sorted.empty() ? first : sorted.back() + 1, parts.graph.num_nodes);
}

/// allx followed by the rows of tx, each at its test id; rows without an id are empty.
at::Tensor assemble_features(const Parts& parts, std::int64_t num_nodes) {
  const std::int64_t num_first = parts.allx.size(0);
  const at::Tensor test_ids = at::tensor(parts.test_ids, at::kLong);
  at::Tensor lengths = at::zeros({num_nodes}, at::kLong);
  lengths.narrow(0, 0, num_first).copy_(parts.allx.crow_indices().diff());
  lengths.index_put_({test_ids}, parts.tx.crow_indices().diff());
  const at::Tensor indptr = at::cat({at::zeros({1}, at::kLong), lengths.cumsum(0)});

  const std::int64_t nnz = indptr[num_nodes].item<std::int64_t>();
  at::Tensor indices = at::empty({nnz}, at::kLong);
  at::Tensor values = at::empty({nnz}, at::kFloat);
  const std::int64_t nnz_first = parts.allx.values().numel();
  indices.narrow(0, 0, nnz_first).copy_(parts.allx.col_indices());
  values.narrow(0, 0, nnz_first).copy_(parts.allx.values());
  const at::Tensor tx_indptr = parts.tx.crow_indices();
  const at::Tensor tx_indices = parts.tx.col_indices();
  const at::Tensor tx_values = parts.tx.values();
  const auto* from = tx_indptr.const_data_ptr<std::int64_t>();
  const auto* to = indptr.const_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < parts.test_ids.size(); ++i) {
    const std::int64_t target = to[parts.test_ids[i]];
    std::copy(tx_indices.const_data_ptr<std::int64_t>() + from[i],
              tx_indices.const_data_ptr<std::int64_t>() + from[i + 1],
              indices.mutable_data_ptr<std::int64_t>() + target);
    std::copy(tx_values.const_data_ptr<float>() + from[i],
              tx_values.const_data_ptr<float>() + from[i + 1],
              values.mutable_data_ptr<float>() + target);
  }
  return make_csr(num_nodes, parts.allx.size(1), indptr, indices, values, parts.test_where);
}

/// The sets in a folder, by name.
std::map<std::string, fs::path> planetoid_sets(const fs::path& folder) {
  constexpr std::string_view kPrefix = "ind.", kSuffix = ".graph";
  std::map<std::string, fs::path> sets;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (file.size() > kPrefix.size() + kSuffix.size() && file.starts_with(kPrefix) &&
        file.ends_with(kSuffix)) {
      const std::string prefix = file.substr(0, file.size() - kSuffix.size());
      sets[prefix.substr(kPrefix.size())] = folder / prefix;
    }
  }
  return sets;
}

/// The Planetoid files allx, ally, tx, ty, y, graph and test.index of `<folder>/ind.<name>`; x
/// repeats the first rows of allx and is not read. Train: the rows of y; val: the next 500, or the
/// rest of allx; test: test.index. Ids that test.index leaves out get zero features, class
/// 0 and no mask; a row of zeros in ally or ty is class 0 too.
Dataset read_planetoid(const fs::path& folder, const std::string& name,
                       const LoadOptions& options) {
  refuse_named_split(options, (folder / ("ind." + name)).string());
  const Parts parts = read_parts(folder, name);
  const std::int64_t num_nodes = count_nodes(parts);
  const std::int64_t num_first = parts.allx.size(0);
  const at::Tensor test_ids = at::tensor(parts.test_ids, at::kLong);

  Dataset dataset;
  dataset.name = name;
  at::Tensor labels = at::zeros({num_nodes}, at::kLong);
  labels.narrow(0, 0, num_first).copy_(parts.ally);
  labels.index_put_({test_ids}, parts.ty);
  set_labels(dataset, class_labels(labels, parts.num_classes, parts.test_where));
  dataset.features = assemble_features(parts, num_nodes);
  set_undirected_edges(dataset, parts.graph.edges, parts.graph_where);

  const at::Tensor empty_mask = at::zeros({num_nodes, 1}, at::kBool);
  const std::int64_t num_val = std::min(kNumVal, num_first - parts.num_train);
  dataset.train_masks = empty_mask.clone();
  dataset.train_masks.narrow(0, 0, parts.num_train).fill_(true);
  dataset.val_masks = empty_mask.clone();
  dataset.val_masks.narrow(0, parts.num_train, num_val).fill_(true);
  dataset.test_masks = empty_mask.clone();
  dataset.test_masks.index_fill_(0, test_ids, true);
  return dataset;
}

/// The folder of `<folder>/ind.<name>`.
fs::path folder_of_set(const fs::path& prefix) {
  return prefix.has_parent_path() ? prefix.parent_path() : fs::path(".");
}

bool is_planetoid(const fs::path& path) {
  if (fs::is_directory(path)) return !planetoid_sets(path).empty();
  const std::string file = path.filename().string();
  const fs::path folder = folder_of_set(path);
  return file.starts_with("ind.") && !fs::exists(path) && fs::is_directory(folder) &&
         planetoid_sets(folder).count(file.substr(4)) > 0;
}

std::unique_ptr<GraphSource> open_planetoid(const fs::path& path, const LoadOptions& options) {
  if (!fs::is_directory(path)) {
    const std::string name = path.filename().string().substr(4);
    return source_of(read_planetoid(folder_of_set(path), name, options));
  }
  std::vector<std::string> names;
  const std::map<std::string, fs::path> sets = planetoid_sets(path);
  for (const auto& [name, prefix] : sets) names.push_back(name);
  MEZZO_CHECK(sets.size() == 1, "dataset: {} holds the Planetoid sets {}; name one, such as {}",
              path.string(), fmt::join(names, ", "), sets.begin()->second.string());
  return source_of(read_planetoid(path, names[0], options));
}

}  // namespace

extern const Format kPlanetoidFormat = {
    "Planetoid pickles", {}, open_planetoid, is_planetoid, planetoid_sets};

}  // namespace mezzo::data
