#include "mezzo/data/listed_links.h"

#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

void check_ids(const at::Tensor& ids, std::int64_t bound, const char* what,
               const std::string& where) {
  if (!ids.defined()) return;
  const at::Tensor flat = ids.reshape(-1);
  const at::Tensor bad = flat.lt(0).logical_or_(flat.ge(bound)).nonzero();
  require(bad.size(0) == 0, where, "{}: item {} is {}, outside [0, {})", what,
          bad.size(0) == 0 ? 0 : bad[0][0].item<std::int64_t>(),
          bad.size(0) == 0 ? 0 : flat[bad[0][0].item<std::int64_t>()].item<std::int64_t>(), bound);
}

/// A number for each pair and type, in [0, N * N * R).
at::Tensor keys_of(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& types,
                   const Dataset& dataset) {
  const at::Tensor pairs = src * dataset.num_nodes + dst;
  return types.defined() ? pairs * dataset.num_edge_types + types : pairs;
}

void check_size(const Dataset& dataset, const std::string& where) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  require(dataset.num_nodes <= kMost / dataset.num_nodes / dataset.num_edge_types, where,
          "{} nodes and {} types of edges are too many to number the pairs of nodes",
          dataset.num_nodes, dataset.num_edge_types);
}

at::Tensor zeros_like_rows(const at::Tensor& rows, std::int64_t count) {
  std::vector<std::int64_t> shape = rows.sizes().vec();
  shape[0] = count;
  return at::zeros(shape, rows.options());
}

/// Adds links as edges.
void append_edges(Dataset& dataset, const ListedPairs& links) {
  const std::int64_t count = links.src.numel();
  dataset.src = at::cat({dataset.src, links.src});
  dataset.dst = at::cat({dataset.dst, links.dst});
  if (dataset.edge_types.defined()) {
    dataset.edge_types =
        at::cat({dataset.edge_types,
                 links.types.defined() ? links.types : zeros_like_rows(dataset.edge_types, count)});
  }
  if (dataset.edge_weights.defined()) {
    dataset.edge_weights = at::cat(
        {dataset.edge_weights, links.weights.defined() ? links.weights : at::ones({count})});
  }
  if (dataset.edge_features.defined()) {
    dataset.edge_features =
        at::cat({dataset.edge_features, zeros_like_rows(dataset.edge_features, count)});
  }
}

/// Those of the pairs that `mask` selects, without negatives.
ListedPairs select(const ListedPairs& pairs, const at::Tensor& mask) {
  const auto of = [&](const at::Tensor& column) {
    return column.defined() ? column.masked_select(mask) : at::Tensor();
  };
  return {.src = of(pairs.src),
          .dst = of(pairs.dst),
          .types = of(pairs.types),
          .weights = of(pairs.weights)};
}

at::Tensor keys_of(const ListedPairs& pairs, const Dataset& dataset) {
  return keys_of(pairs.src, pairs.dst, dataset.edge_types.defined() ? pairs.types : at::Tensor(),
                 dataset);
}

at::Tensor edge_keys(const Dataset& dataset) {
  return keys_of(dataset.src, dataset.dst, dataset.edge_types, dataset);
}

/// All negative pairs [2, M] of the links; undefined without any.
at::Tensor negative_pairs(const ListedPairs& links) {
  const NegativePairs& negatives = links.negatives;
  std::vector<at::Tensor> all;
  if (negatives.pairs.defined()) all.push_back(negatives.pairs);
  if (negatives.src.defined()) {
    const at::Tensor dst = links.dst.repeat_interleave(negatives.src.size(1));
    all.push_back(at::stack({negatives.src.reshape(-1), dst}));
  }
  if (negatives.dst.defined()) {
    const at::Tensor src = links.src.repeat_interleave(negatives.dst.size(1));
    all.push_back(at::stack({src, negatives.dst.reshape(-1)}));
  }
  return all.empty() ? at::Tensor() : at::cat(all, 1);
}

}  // namespace

ListedPairs pairs_of_columns(const at::Tensor& columns, const std::string& where) {
  const at::Tensor ids = as_int64(columns, where);
  require(ids.dim() == 2 && ids.size(1) == 2, where, "expected pairs of nodes, [n, 2], got {}",
          shape_text(ids));
  return {.src = ids.select(1, 0).contiguous(), .dst = ids.select(1, 1).contiguous()};
}

void check_pairs(const ListedPairs& pairs, const Dataset& dataset, const std::string& where) {
  const std::int64_t count = pairs.src.numel(), nodes = dataset.num_nodes;
  require(pairs.src.dim() == 1, where, "sources: expected shape [L], got {}",
          shape_text(pairs.src));
  for (const auto& [column, what] :
       {std::pair{pairs.dst, "destinations"}, std::pair{pairs.types, "types"},
        std::pair{pairs.weights, "weights"}}) {
    require(!column.defined() || (column.dim() == 1 && column.numel() == count), where,
            "{}: expected shape [{}], got {}", what, count,
            column.defined() ? shape_text(column) : "");
  }
  check_ids(pairs.src, nodes, "sources", where);
  check_ids(pairs.dst, nodes, "destinations", where);
  require(pairs.types.defined() == dataset.edge_types.defined(), where,
          "{} types of pairs, but {} types of edges", pairs.types.defined() ? "there are" : "no",
          dataset.edge_types.defined() ? "there are" : "no");
  check_ids(pairs.types, dataset.num_edge_types, "types", where);
  const NegativePairs& negatives = pairs.negatives;
  for (const auto& [ids, rows, what] :
       {std::tuple{negatives.pairs, std::int64_t{2}, "negative pairs"},
        std::tuple{negatives.src, count, "negative sources"},
        std::tuple{negatives.dst, count, "negative destinations"}}) {
    require(!ids.defined() || (ids.dim() == 2 && ids.size(0) == rows && ids.size(1) > 0), where,
            "{}: expected {} rows of nodes, got shape {}", what, rows,
            ids.defined() ? shape_text(ids) : "");
    check_ids(ids, nodes, what, where);
  }
}

void add_links(Dataset& dataset, const ListedSplit& split, bool messages,
               const std::string& where) {
  require(split.train.src.numel() > 0, where, "no training links");
  for (const ListedPairs* links : {&split.train, &split.val, &split.test}) {
    check_pairs(*links, dataset, where);
  }
  check_size(dataset, where);
  const at::Tensor listed = keys_of(split.train, dataset);
  append_edges(dataset, select(split.train, at::isin(listed, edge_keys(dataset)).logical_not()));
  at::Tensor train = at::isin(edge_keys(dataset), listed);
  const std::int64_t edges = dataset.num_edges();
  append_edges(dataset, split.val);
  append_edges(dataset, split.test);
  const auto mask_of = [&](std::int64_t begin, std::int64_t count) {
    at::Tensor mask = at::zeros({dataset.num_edges()}, at::kBool);
    mask.narrow(0, begin, count).fill_(true);
    return mask;
  };
  const std::int64_t num_val = split.val.src.numel(), num_test = split.test.src.numel();
  dataset.train_masks = at::cat({train, at::zeros({num_val + num_test}, at::kBool)}).unsqueeze(1);
  dataset.val_masks = mask_of(edges, num_val).unsqueeze(1);
  dataset.test_masks = mask_of(edges + num_val, num_test).unsqueeze(1);
  if (messages) dataset.message_mask = mask_of(0, edges);
  // An edge may be missing in the list of training links, or occur twice.
  dataset.negatives = {.train = {.pairs = negative_pairs(split.train)},
                       .val = split.val.negatives,
                       .test = split.test.negatives};
  dataset.target = TaskTarget::kLink;
  dataset.metric = Metric::kRocAuc;
  set_links(dataset, {});
}

at::Tensor rows_of_edges(const ListedPairs& pairs, const Dataset& dataset,
                         const std::string& where) {
  check_size(dataset, where);
  const at::Tensor edges = edge_keys(dataset), listed = keys_of(pairs, dataset);
  const at::Tensor missing = at::isin(listed, edges).logical_not_().nonzero();
  require(missing.size(0) == 0, where, "pair {} is no edge of the graph",
          missing.size(0) == 0 ? 0 : missing[0][0].item<std::int64_t>());
  if (listed.numel() == 0) return at::full_like(edges, -1);
  const auto [sorted, order] = listed.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor twice = sorted.diff().eq(0).nonzero();
  require(twice.size(0) == 0, where, "pair {} occurs twice",
          twice.size(0) == 0 ? 0 : order[twice[0][0]].item<std::int64_t>());
  const at::Tensor place = at::searchsorted(sorted, edges).clamp_max(sorted.numel() - 1);
  const at::Tensor is_listed = sorted.index_select(0, place).eq(edges);
  return order.index_select(0, place).masked_fill(is_listed.logical_not(), -1);
}

}  // namespace mezzo::data
