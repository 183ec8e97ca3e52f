#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr double kTrainShare = 0.85, kValShare = 0.05;
constexpr std::int64_t kFewestPairs = 3;
constexpr std::int64_t kMostNodesOfPairs = 3'000'000'000;  // a pair of nodes is one int64

void use_coordinates(Dataset& dataset) {
  if (!dataset.indptr.defined()) return;
  dataset.src = dataset.indices.to(at::kLong);
  dataset.dst = at::arange(dataset.num_nodes).repeat_interleave(dataset.indptr.diff());
  dataset.indptr.reset();
  dataset.indices.reset();
}

void split_pairs(Dataset& dataset, const LoadOptions& options) {
  refuse_named_split(options, dataset.name);
  require(dataset.num_nodes <= kMostNodesOfPairs, dataset.name, "{} nodes, expected at most {}",
          dataset.num_nodes, kMostNodesOfPairs);
  const at::Tensor &src = dataset.src, &dst = dataset.dst;
  const at::Tensor between_two = src.ne(dst);
  const at::Tensor edges = between_two.nonzero().squeeze(1);
  const at::Tensor keys =
      (at::minimum(src, dst) * dataset.num_nodes + at::maximum(src, dst)).index_select(0, edges);
  const auto [pairs, pair_of_edge] = at::_unique(keys, /*sorted=*/true, /*return_inverse=*/true);
  const std::int64_t count = pairs.numel();
  require(count >= kFewestPairs, dataset.name,
          "{} pairs of nodes with links, expected at least {} to split", count, kFewestPairs);
  const auto part = [count](double share) {
    return std::max<std::int64_t>(1, std::llround(share * static_cast<double>(count)));
  };
  const std::int64_t num_val = part(kValShare);
  const std::int64_t num_test = part(1 - kTrainShare - kValShare);
  at::Tensor side_of_pair = at::zeros({count}, at::kByte);
  const std::vector<std::int64_t> order = random_order(count, options.split_seed);
  for (std::int64_t i = 0; i < num_val + num_test; ++i) {
    side_of_pair.mutable_data_ptr<std::uint8_t>()[order[static_cast<std::size_t>(i)]] =
        i < num_val ? 1 : 2;
  }
  const at::Tensor side = side_of_pair.index_select(0, pair_of_edge);
  const auto mask_of = [&](int which) {
    at::Tensor mask = at::zeros({dataset.num_edges()}, at::kBool);
    return mask.index_put_({edges}, side.eq(which)).unsqueeze(1);
  };
  dataset.train_masks = mask_of(0);
  dataset.val_masks = mask_of(1);
  dataset.test_masks = mask_of(2);
}

}  // namespace

void set_links(Dataset& dataset, const LoadOptions& options) {
  const bool has_split = dataset.target == TaskTarget::kLink;
  const bool of_edges = has_split || dataset.target == TaskTarget::kEdge;
  MEZZO_CHECK(!dataset.graph_offsets.defined(),
              "task: {} is a set of graphs, and links are those of one graph", dataset.name);
  if (of_edges && label_kind_of(dataset.labels) == LabelKind::kClass && dataset.labels.defined()) {
    require(dataset.labels.ge(0).all().item<bool>(), dataset.name,
            "edges without a class, which is their type in links");
    dataset.edge_types = dataset.labels;
    dataset.num_edge_types = dataset.num_classes;
  }
  use_coordinates(dataset);
  dataset.target = TaskTarget::kLink;
  dataset.labels = at::ones({dataset.num_edges(), 1}, at::kByte);
  dataset.num_classes = 1;
  dataset.class_names = {"link"};
  if (has_split) return;
  dataset.split_names.clear();
  dataset.metric = Metric::kRocAuc;
  split_pairs(dataset, options);
}

}  // namespace mezzo::data
