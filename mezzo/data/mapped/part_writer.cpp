#include "mezzo/data/mapped/part_writer.h"

#include <algorithm>
#include <limits>

#include <ATen/ATen.h>

#include "mezzo/data/csr_rows.h"
#include "mezzo/data/mapped/folder_writer.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::int64_t kPartsItemsPerSlice = std::int64_t{1} << 22;  // of features copied at a time
constexpr std::uint8_t kNotReached = 255;

}  // namespace

WholeRows::WholeRows(const Dataset& dataset) {
  if (dataset.indptr.defined()) {
    indptr_ = dataset.indptr.contiguous();
    indices_ = dataset.indices.contiguous();
  } else {
    set_sorted(dataset);
  }
  begins_ = indptr_.const_data_ptr<std::int64_t>();
  if (indices_.scalar_type() == at::kInt) {
    int32_sources_ = indices_.const_data_ptr<std::int32_t>();
  } else {
    int64_sources_ = indices_.const_data_ptr<std::int64_t>();
  }
}

void WholeRows::set_sorted(const Dataset& dataset) {
  at::Tensor order = at::argsort(dataset.src, /*stable=*/true, 0, /*descending=*/false);
  order = order.index_select(
      0, at::argsort(dataset.dst.index_select(0, order), /*stable=*/true, 0, false));
  const std::int64_t most = std::max(dataset.num_nodes, dataset.num_edges());
  const bool fits_int32 = most <= std::numeric_limits<std::int32_t>::max();
  indices_ = dataset.src.index_select(0, order).to(fits_int32 ? at::kInt : at::kLong);
  indptr_ = at::zeros({dataset.num_nodes + 1}, at::kLong);
  indptr_.narrow(0, 1, dataset.num_nodes)
      .copy_(at::bincount(dataset.dst, {}, dataset.num_nodes).cumsum(0));
}

PartWriter::PartWriter(const Dataset& dataset, const at::Tensor& parts, std::int64_t num_parts,
                       std::int64_t hops)
    : dataset_(dataset),
      rows_(dataset),
      parts_(parts.contiguous()),
      part_(parts_.const_data_ptr<std::int64_t>()),
      num_parts_(num_parts),
      hops_(hops),
      distance_(static_cast<std::size_t>(rows_.num_nodes())),
      place_(static_cast<std::size_t>(rows_.num_nodes())),
      out_degrees_(at::zeros({rows_.num_nodes()}, at::kLong)) {
  auto* out_degree = out_degrees_.mutable_data_ptr<std::int64_t>();
  for (std::int64_t node = 0; node < rows_.num_nodes(); ++node) {
    for (std::int64_t entry = rows_.begin(node); entry < rows_.end(node); ++entry) {
      ++out_degree[rows_.source(entry)];
      edge_cut_ += part_[rows_.source(entry)] != part_[node] ? 1 : 0;
    }
  }
}

PartSize PartWriter::write(std::int64_t index, const std::filesystem::path& folder) {
  folder_ = folder;
  manifest_ = {.name = dataset_.name,
               .num_features = dataset_.num_features(),
               .num_classes = dataset_.num_classes,
               .metric = dataset_.metric,
               .class_names = dataset_.class_names};
  manifest_.part = FolderPart{.index = index,
                              .num_parts = num_parts_,
                              .hops = hops_,
                              .num_nodes = rows_.num_nodes(),
                              .num_edges = rows_.num_edges()};
  reach(index);
  number_nodes();
  write_rows();
  write_part_arrays(index);
  write_features();
  write_labels();
  write_manifest(folder_, manifest_);
  read_mapped_dataset(folder_, {}).validate();
  const std::int64_t own = own_.sum().item<std::int64_t>();
  return {.folder = {},
          .own_nodes = own,
          .halo_nodes = manifest_.num_nodes - own,
          .edges = manifest_.num_edges};
}

void PartWriter::save(const std::string& name, const at::Tensor& items) {
  NpyWriter writer(folder_, name + ".npy", items.scalar_type(), items.sizes().vec());
  writer.append(items.contiguous());
  manifest_.arrays[name] = writer.finish();
}

/// The distance in edges of each node from the part's own nodes, up to hops_.
void PartWriter::reach(std::int64_t index) {
  std::vector<std::int64_t> frontier, next;
  for (std::int64_t node = 0; node < rows_.num_nodes(); ++node) {
    distance(node) = part_[node] == index ? 0 : kNotReached;
    if (distance(node) == 0) frontier.push_back(node);
  }
  for (std::int64_t hop = 1; hop <= hops_; ++hop) {
    next.clear();
    for (const std::int64_t node : frontier) {
      for (std::int64_t entry = rows_.begin(node); entry < rows_.end(node); ++entry) {
        const std::int64_t source = rows_.source(entry);
        if (distance(source) != kNotReached) continue;
        distance(source) = static_cast<std::uint8_t>(hop);
        next.push_back(source);
      }
    }
    frontier.swap(next);
  }
}

/// The nodes of the part, ascending as in the whole.
void PartWriter::number_nodes() {
  std::int64_t count = 0;
  for (std::int64_t node = 0; node < rows_.num_nodes(); ++node) {
    if (distance(node) != kNotReached) place_[static_cast<std::size_t>(node)] = count++;
  }
  manifest_.num_nodes = count;
  nodes_ = at::empty({count}, at::kLong);
  auto* nodes = nodes_.mutable_data_ptr<std::int64_t>();
  for (std::int64_t node = 0; node < rows_.num_nodes(); ++node) {
    if (distance(node) != kNotReached) *nodes++ = node;
  }
}

/// Passes the sources of the part's row of `node` to `take`. The outermost nodes keep their self
/// loops, so that every node has the same ones as in the whole.
template <class Take>
void PartWriter::row(std::int64_t node, const Take& take) {
  const bool rim = distance(node) == hops_;
  for (std::int64_t entry = rows_.begin(node); entry < rows_.end(node); ++entry) {
    const std::int64_t source = rows_.source(entry);
    if (!rim || source == node) take(source);
  }
}

template <class Id>
void PartWriter::write_sources() {
  NpyPlaces places(folder_, "indices.npy", rows_.id_dtype(), manifest_.num_edges);
  Id* next = places.items<Id>();
  const auto* nodes = nodes_.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < manifest_.num_nodes; ++i) {
    row(nodes[i], [&](std::int64_t source) {
      *next++ = static_cast<Id>(place_[static_cast<std::size_t>(source)]);
    });
  }
  manifest_.arrays["indices"] = places.finish(manifest_.num_edges);
}

void PartWriter::write_rows() {
  const at::Tensor indptr = at::zeros({manifest_.num_nodes + 1}, at::kLong);
  auto* begins = indptr.mutable_data_ptr<std::int64_t>();
  const auto* nodes = nodes_.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < manifest_.num_nodes; ++i) {
    begins[i + 1] = begins[i];
    row(nodes[i], [&](std::int64_t /*source*/) { ++begins[i + 1]; });
  }
  manifest_.num_edges = begins[manifest_.num_nodes];
  save("indptr", indptr);
  // The dtype of the whole data set, because its degrees must fit too.
  if (rows_.id_dtype() == at::kInt) {
    write_sources<std::int32_t>();
  } else {
    write_sources<std::int64_t>();
  }
}

void PartWriter::write_part_arrays(std::int64_t index) {
  own_ = parts_.index_select(0, nodes_).eq(index);
  const at::Tensor in_degrees = at::empty({manifest_.num_nodes}, at::kLong);
  auto* in_degree = in_degrees.mutable_data_ptr<std::int64_t>();
  const auto* nodes = nodes_.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < manifest_.num_nodes; ++i) {
    in_degree[i] = rows_.end(nodes[i]) - rows_.begin(nodes[i]);
  }
  save("node_ids", nodes_);
  save("own_mask", own_);
  save("in_degrees", in_degrees);
  save("out_degrees", out_degrees_.index_select(0, nodes_));
}

void PartWriter::write_features() {
  const at::Tensor& features = dataset_.features;
  if (manifest_.num_features == 0) return;
  if (features.layout() == at::kSparseCsr) {
    const at::Tensor rows = csr_rows(features, nodes_);
    save("feature_indptr", rows.crow_indices());
    save("feature_indices", rows.col_indices());
    save("feature_values", rows.values());
    return;
  }
  const std::int64_t width = manifest_.num_features;
  NpyWriter writer(folder_, "features.npy", features.scalar_type(), {manifest_.num_nodes, width});
  const std::int64_t slice = std::max<std::int64_t>(kPartsItemsPerSlice / width, 1);
  for (std::int64_t first = 0; first < manifest_.num_nodes; first += slice) {
    const std::int64_t count = std::min(slice, manifest_.num_nodes - first);
    writer.append(features.index_select(0, nodes_.narrow(0, first, count)).contiguous());
  }
  manifest_.arrays["features"] = writer.finish();
}

void PartWriter::write_labels() {
  if (!dataset_.labels.defined()) return;
  save("labels", dataset_.labels.index_select(0, nodes_));
  const at::Tensor own = own_.unsqueeze(1);
  save("train_masks", dataset_.train_masks.index_select(0, nodes_).logical_and(own));
  save("val_masks", dataset_.val_masks.index_select(0, nodes_).logical_and(own));
  save("test_masks", dataset_.test_masks.index_select(0, nodes_).logical_and(own));
}

}  // namespace mezzo::data
