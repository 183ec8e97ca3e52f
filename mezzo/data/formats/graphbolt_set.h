#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/data/formats/yaml_place.h"
#include "mezzo/data/listed_links.h"

namespace mezzo::data {

/// One of the sets of a GraphBolt task: its arrays of the formats numpy and torch; internal. Every
/// error is an IoError with the file.
class GraphBoltSet {
 public:
  GraphBoltSet(const YamlPlace& set, std::filesystem::path folder);

  bool has(const std::string& name) const;
  /// The file of an array that exists.
  std::string where(const std::string& name) const;
  at::Tensor array(const std::string& name) const;

  /// The name of the seeds: "seeds", or "seed_nodes" or "node_pairs" of the first releases; "" if
  /// there are none.
  std::string seeds_name() const;
  at::Tensor seeds() const { return array(seeds_name()); }
  bool has_pairs() const { return seeds_name() == "node_pairs" || seeds().dim() == 2; }
  bool has_negatives() const { return has("negative_srcs") || has("negative_dsts"); }

  /// The labels of `count` seeds: int64 [count], at least 0, for kClass, else float64 [count, C].
  /// Throws if there are no labels.
  at::Tensor labels(LabelKind kind, std::int64_t count) const;
  /// The pairs that are links, and the others as their negative pairs.
  ListedPairs links() const;

 private:
  const YamlPlace* entry(const std::string& name) const;
  /// Separates pairs with the labels 1 and 0.
  ListedPairs separated(const ListedPairs& all) const;
  /// The negative pairs of each link, which have its index. links, others: the rows of both.
  NegativePairs grouped(const ListedPairs& all, const at::Tensor& links,
                        const at::Tensor& others) const;

  YamlPlace place_;
  std::filesystem::path folder_;
  std::vector<YamlPlace> entries_;
};

}  // namespace mezzo::data
