#include "mezzo/message_passing/degree_buckets.h"

#include <map>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"

namespace mezzo {
namespace {

/// Destinations of one in-degree and the edges into them.
struct Bucket {
  std::int64_t degree;
  at::Tensor nodes;  ///< int64 [n]
  at::Tensor edges;  ///< int64 [n * degree], grouped by node, ascending
};

/// The destinations with in-edges, by ascending in-degree (DGL's degree buckets). Runs on the host.
std::vector<Bucket> degree_buckets(const Topology& topology) {
  const Adjacency& rows = topology.csc();
  const at::Tensor indptr = rows.indptr.cpu();
  const at::Tensor degrees = indptr.diff();
  const at::Tensor order =
      std::get<1>(degrees.sort(/*stable=*/std::optional<bool>(true), /*dim=*/0));
  const auto [values, inverse, counts] = at::unique_consecutive(
      degrees.index_select(0, order), /*return_inverse=*/false, /*return_counts=*/true);
  std::vector<Bucket> buckets;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    const std::int64_t degree = values[i].item<std::int64_t>();
    const std::int64_t count = counts[i].item<std::int64_t>();
    const at::Tensor nodes = order.narrow(0, begin, count);
    begin += count;
    if (degree == 0) continue;
    const at::Tensor host_entries =
        (indptr.index_select(0, nodes).unsqueeze(1) + at::arange(degree).unsqueeze(0)).flatten();
    const at::Device device = topology.device();
    const at::Tensor entries = host_entries.to(device);
    buckets.push_back(
        {degree, nodes.to(device),
         rows.edge_ids.defined() ? rows.edge_ids.index_select(0, entries).to(at::kLong) : entries});
  }
  return buckets;
}

Columns mailbox_of(const Columns& messages, const Bucket& bucket) {
  Columns mailbox;
  for (const auto& [name, message] : messages) {
    auto shape = message.sizes().vec();
    shape[0] = bucket.degree;
    shape.insert(shape.begin(), bucket.nodes.size(0));
    mailbox[name] = message.index_select(0, bucket.edges).view(shape);
  }
  return mailbox;
}

std::string names_of(const Columns& columns) {
  std::string names;
  for (const auto& [name, column] : columns) names += (names.empty() ? "'" : ", '") + name + "'";
  return names.empty() ? "none" : names;
}

/// The columns that the function returned for one bucket.
struct ReducedBucket {
  std::int64_t degree;
  Columns columns;
};

/// Throws unless `later` has the columns of `first`, with rows of equal dtype and shape.
void check_same_columns(const std::string& context, const ReducedBucket& first,
                        const ReducedBucket& later) {
  const std::string expected = names_of(first.columns), got = names_of(later.columns);
  MEZZO_CHECK(expected == got,
              "{}: expected the same columns for every in-degree, got {} for in-degree {} and {} "
              "for in-degree {}",
              context, expected, first.degree, got, later.degree);
  for (const auto& [name, column] : later.columns) {
    const at::Tensor& before = first.columns.at(name);
    MEZZO_CHECK(column.scalar_type() == before.scalar_type() &&
                    column.sizes().slice(1) == before.sizes().slice(1),
                "{}: expected rows of one dtype and shape in column '{}', got {} for in-degree {} "
                "and {} for in-degree {}",
                context, name, detail::describe(before), first.degree, detail::describe(column),
                later.degree);
  }
}

/// Scatters the rows of the buckets to the rows of their nodes; the others are 0.
at::Tensor scattered(const std::vector<at::Tensor>& parts, const at::Tensor& nodes,
                     std::int64_t num_rows) {
  const at::Tensor rows = at::cat(parts);
  auto shape = rows.sizes().vec();
  shape[0] = num_rows;
  return at::zeros(shape, rows.options()).index_copy(0, nodes, rows);
}

}  // namespace

void check_returned(const std::string& context, const Columns& columns, std::int64_t num_rows,
                    const char* owner, at::Device device) {
  for (const auto& [name, column] : columns) {
    MEZZO_CHECK(column.defined() && column.layout() == at::kStrided && column.dim() >= 1 &&
                    column.size(0) == num_rows,
                "{}: expected column '{}' [{}, ...], one row {}, got {}", context, name, num_rows,
                owner, detail::describe(column));
    MEZZO_CHECK(column.device() == device, "{}: expected column '{}' on {}, got {}", context, name,
                device.str(), column.device().str());
  }
}

Columns reduce_by_degree(const std::string& context, const Topology& topology, const FrameRows& dst,
                         const Columns& messages, const ReduceFunction::Custom& reduce) {
  std::vector<ReducedBucket> reduced;
  std::vector<at::Tensor> nodes;
  for (const Bucket& bucket : degree_buckets(topology)) {
    const NodeBatch batch(dst.pick(bucket.nodes), mailbox_of(messages, bucket), /*fresh=*/{},
                          context);
    reduced.push_back({bucket.degree, reduce(batch)});
    check_returned(context, reduced.back().columns, batch.batch_size(), "a node of the batch",
                   topology.device());
    check_same_columns(context, reduced.front(), reduced.back());
    nodes.push_back(bucket.nodes);
  }
  Columns result;
  if (reduced.empty()) return result;
  for (const auto& [name, first] : reduced.front().columns) {
    std::vector<at::Tensor> parts;
    for (const ReducedBucket& part : reduced) parts.push_back(part.columns.at(name));
    result[name] = scattered(parts, at::cat(nodes), topology.num_dst());
  }
  return result;
}

}  // namespace mezzo
