#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/data/dataset.h"
#include "mezzo/data/mapped/mapped_dataset.h"
#include "mezzo/data/parts.h"

/// Writes the parts of a data set as mapped datasets; internal.
namespace mezzo::data {

/// The CSR rows by destination of a whole data set, however its edges are stored.
class WholeRows {
 public:
  explicit WholeRows(const Dataset& dataset);

  std::int64_t num_nodes() const { return indptr_.numel() - 1; }
  std::int64_t num_edges() const { return indices_.numel(); }
  at::ScalarType id_dtype() const { return indices_.scalar_type(); }
  /// The in-edges of a node are entries begin() to end() - 1.
  std::int64_t begin(std::int64_t node) const { return begins_[node]; }
  std::int64_t end(std::int64_t node) const { return begins_[node + 1]; }
  std::int64_t source(std::int64_t entry) const {
    return int32_sources_ != nullptr ? int32_sources_[entry] : int64_sources_[entry];
  }

 private:
  void set_sorted(const Dataset& dataset);

  at::Tensor indptr_, indices_;
  const std::int64_t* begins_ = nullptr;
  const std::int32_t* int32_sources_ = nullptr;
  const std::int64_t* int64_sources_ = nullptr;
};

/// Writes the parts of one data set.
class PartWriter {
 public:
  /// parts: int64 [N], the part of each node, checked. dataset: outlives the object.
  PartWriter(const Dataset& dataset, const at::Tensor& parts, std::int64_t num_parts,
             std::int64_t hops);

  /// Edges between nodes of different parts.
  std::int64_t edge_cut() const { return edge_cut_; }

  /// Writes one part into the existing `folder`. Does not set the result's folder.
  PartSize write(std::int64_t index, const std::filesystem::path& folder);

 private:
  void save(const std::string& name, const at::Tensor& items);
  std::uint8_t& distance(std::int64_t node) { return distance_[static_cast<std::size_t>(node)]; }
  void reach(std::int64_t index);
  void number_nodes();
  template <class Take>
  void row(std::int64_t node, const Take& take);
  template <class Id>
  void write_sources();
  void write_rows();
  void write_part_arrays(std::int64_t index);
  void write_features();
  void write_labels();

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
  FolderManifest manifest_;
  at::Tensor nodes_, own_;  // int64 and bool, of the part being written
};

}  // namespace mezzo::data
