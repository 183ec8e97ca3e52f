#include "mezzo/data/formats/graphbolt_set.h"

#include <utility>

#include <ATen/ATen.h>

#include "mezzo/data/formats/graphbolt.h"

namespace mezzo::data {
namespace {

/// Nodes [n, K] of n pairs.
at::Tensor nodes_of_pairs(const at::Tensor& nodes, std::int64_t count, const std::string& where) {
  const at::Tensor ids = as_int64(nodes, where);
  require((ids.dim() == 1 || ids.dim() == 2) && ids.size(0) == count, where,
          "expected nodes [{}, K], got shape {}", count, shape_text(ids));
  return ids.reshape({count, ids.dim() == 2 ? ids.size(1) : 1});
}

at::Tensor pairs_at(const ListedPairs& all, const at::Tensor& rows) {
  return at::stack({all.src.index_select(0, rows), all.dst.index_select(0, rows)});
}

}  // namespace

GraphBoltSet::GraphBoltSet(const YamlPlace& set, std::filesystem::path folder)
    : place_(set), folder_(std::move(folder)), entries_(set.list("data")) {}

const YamlPlace* GraphBoltSet::entry(const std::string& name) const {
  for (const YamlPlace& one : entries_) {
    if (one.text_if_any("name") == name) return &one;
  }
  return nullptr;
}

bool GraphBoltSet::has(const std::string& name) const {
  return entry(name) != nullptr;
}

std::string GraphBoltSet::where(const std::string& name) const {
  return (folder_ / entry(name)->text("path")).string();
}

at::Tensor GraphBoltSet::array(const std::string& name) const {
  place_.check(has(name), "expected data called '{}'", name);
  return read_graphbolt_array(*entry(name), folder_);
}

std::string GraphBoltSet::seeds_name() const {
  for (const char* name : {"seeds", "seed_nodes", "node_pairs"}) {
    if (has(name)) return name;
  }
  return "";
}

at::Tensor GraphBoltSet::labels(LabelKind kind, std::int64_t count) const {
  place_.check(has("labels"), "expected data called 'seeds' and 'labels'");
  const std::string at = where("labels");
  const at::Tensor labels = array("labels");
  const bool column = labels.dim() == 2 && labels.size(1) == 1;
  if (kind != LabelKind::kClass) {
    require(
        (labels.dim() == 1 || labels.dim() == 2) && labels.size(0) == count && !labels.is_complex(),
        at, "expected the labels of {} seeds, got shape {}", count, shape_text(labels));
    return labels.to(at::kDouble).reshape({count, labels.dim() == 2 ? labels.size(1) : 1});
  }
  require(labels.numel() == count && (labels.dim() == 1 || column), at,
          "expected one label a seed, shape [{}], got {}", count, shape_text(labels));
  const at::Tensor classes = as_int64(labels, at).reshape(-1);
  const at::Tensor bad = classes.lt(0).nonzero();
  require(bad.size(0) == 0, at, "item {} is the negative label {}",
          bad.size(0) == 0 ? 0 : bad[0][0].item<std::int64_t>(),
          bad.size(0) == 0 ? 0 : classes[bad[0][0].item<std::int64_t>()].item<std::int64_t>());
  return classes;
}

ListedPairs GraphBoltSet::links() const {
  ListedPairs links = pairs_of_columns(seeds(), where(seeds_name()));
  if (has("labels")) links = separated(links);
  if (!has_negatives()) return links;
  place_.check(!has("labels"), "both labels and negative nodes of pairs");
  const std::int64_t count = links.src.numel();
  const auto nodes = [&](const char* name) {
    return has(name) ? nodes_of_pairs(array(name), count, where(name)) : at::Tensor();
  };
  const at::Tensor src = nodes("negative_srcs"), dst = nodes("negative_dsts");
  if (!src.defined() || !dst.defined()) {
    links.negatives = {.src = src, .dst = dst};
    return links;
  }
  require(src.sizes() == dst.sizes(), where("negative_dsts"), "expected shape {}, got {}",
          shape_text(src), shape_text(dst));
  links.negatives.pairs = at::stack({src.reshape(-1), dst.reshape(-1)});
  return links;
}

ListedPairs GraphBoltSet::separated(const ListedPairs& all) const {
  const at::Tensor labels = array("labels").reshape(-1);
  require(labels.numel() == all.src.numel(), where("labels"), "{} labels for {} pairs",
          labels.numel(), all.src.numel());
  const at::Tensor is_link = labels.eq(1);
  const at::Tensor bad = is_link.logical_or(labels.eq(0)).logical_not().nonzero();
  require(bad.size(0) == 0, where("labels"), "item {} is neither 1 nor 0",
          bad.size(0) == 0 ? 0 : bad[0][0].item<std::int64_t>());
  const at::Tensor links = is_link.nonzero().squeeze(1);
  const at::Tensor others = is_link.logical_not().nonzero().squeeze(1);
  ListedPairs result{.src = all.src.index_select(0, links), .dst = all.dst.index_select(0, links)};
  if (others.numel() == 0) return result;
  if (has("indexes")) {
    result.negatives = grouped(all, links, others);
  } else {
    result.negatives.pairs = pairs_at(all, others);
  }
  return result;
}

NegativePairs GraphBoltSet::grouped(const ListedPairs& all, const at::Tensor& links,
                                    const at::Tensor& others) const {
  const std::string at = where("indexes");
  const at::Tensor indexes = as_int64(array("indexes"), at).reshape(-1);
  require(indexes.numel() == all.src.numel(), at, "{} indexes for {} pairs", indexes.numel(),
          all.src.numel());
  const auto [ascending, row] = indexes.index_select(0, links).sort();
  require(links.numel() > 0 && ascending.diff().ne(0).all().item<bool>(), at,
          "expected one link of each index");
  const at::Tensor wanted = indexes.index_select(0, others);
  const at::Tensor place = at::searchsorted(ascending, wanted).clamp_max(links.numel() - 1);
  require(ascending.index_select(0, place).eq(wanted).all().item<bool>(), at,
          "a negative pair has the index of no link");
  const auto [link, order] =
      row.index_select(0, place).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const std::int64_t count = links.numel(), each = others.numel() / count;
  require(each * count == others.numel() &&
              link.equal(at::arange(count, at::kLong).repeat_interleave(each)),
          at, "expected as many negative pairs for each link");
  const at::Tensor pairs = pairs_at(all, others.index_select(0, order)).view({2, count, each});
  const at::Tensor own = pairs_at(all, links).unsqueeze(2);
  const at::Tensor same = pairs.eq(own);
  if (same[0].all().item<bool>()) return {.dst = pairs[1]};
  if (same[1].all().item<bool>()) return {.src = pairs[0]};
  const at::Tensor num_dst = same[0].sum(1);
  require(same.any(0).all().item<bool>() && num_dst.eq(num_dst[0]).all().item<bool>(), at,
          "expected negative pairs with the source or the destination of their link, as many of "
          "each for every link");
  return {.src = pairs[0].masked_select(same[0].logical_not()).view({count, -1}),
          .dst = pairs[1].masked_select(same[0]).view({count, -1})};
}

}  // namespace mezzo::data
