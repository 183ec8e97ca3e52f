#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/core/type_list.h"
#include "mezzo/graph/topology.h"

/// Internal: checks of id tensors and builders of the arrays of a Topology. Errors start with
/// `operation`.
namespace mezzo::detail {

struct Int32Id {
  static constexpr at::ScalarType kind = at::kInt;
  static constexpr std::string_view name = "int32";
  using Type = std::int32_t;
};

struct Int64Id {
  static constexpr at::ScalarType kind = at::kLong;
  static constexpr std::string_view name = "int64";
  using Type = std::int64_t;
};

/// The dtypes of stored ids.
using IdTypes = TypeList<Int32Id, Int64Id>;

/// Edge i runs from src[i] to dst[i].
struct EdgeList {
  at::Tensor src, dst;
};

/// The order of the edge ids of compressed rows.
enum class EntryOrder : std::uint8_t {
  kIdentity,   ///< entry i is edge i
  kAscending,  ///< ascending within each row
  kOther,
};

/// The IdWidth of a graph derived from one with ids of dtype `ids`; int64 stays int64.
constexpr IdWidth width_like(at::ScalarType ids) {
  return ids == at::kLong ? IdWidth::kInt64 : IdWidth::kAutomatic;
}

/// Returns the id dtype for these counts. Throws InvalidArgument for a negative count, or for
/// kInt32 if a count is 2^31 or more.
at::ScalarType choose_id_dtype(std::string_view operation, IdWidth width, std::int64_t num_src,
                               std::int64_t num_dst, std::int64_t num_edges);

/// Returns `ids` as contiguous int32 or int64 (itself if it already is). Throws InvalidArgument
/// unless it is a dense integer vector on a CPU or CUDA device.
at::Tensor check_vector(std::string_view operation, std::string_view name, const at::Tensor& ids);

/// Throws InvalidArgument unless `ids` (may be undefined) is on the device of `first`.
void check_beside(std::string_view operation, std::string_view name, const at::Tensor& ids,
                  std::string_view first_name, const at::Tensor& first);

/// Throws InvalidArgument unless `ids` is as long as `first`.
void check_length(std::string_view operation, std::string_view name, const at::Tensor& ids,
                  std::string_view first_name, const at::Tensor& first);

/// Throws InvalidArgument that names the first id outside [0, bound). ids: from check_vector.
/// Synchronises on CUDA.
void check_range(std::string_view operation, std::string_view name, const at::Tensor& ids,
                 std::int64_t bound);

/// Returns the length of the longest row. Throws InvalidArgument unless `indptr` (from
/// check_vector) runs from 0 to `num_edges` without decreasing. Synchronises on CUDA.
std::int64_t check_indptr(std::string_view operation, const at::Tensor& indptr,
                          std::int64_t num_edges);

/// Throws InvalidArgument unless `degrees` is int32 or int64 [count] on `device`.
void check_parent_degrees(std::string_view name, const at::Tensor& degrees, std::int64_t count,
                          at::Device device);

/// Throws InvalidArgument unless `edge_ids` (from check_vector) is a permutation; returns its order
/// within the rows. Synchronises on CUDA.
EntryOrder check_edge_ids(std::string_view operation, const at::Tensor& indptr,
                          const at::Tensor& edge_ids);

/// Groups edges by `keys` (in [0, num_rows)), in ascending edge id within a row; `others` is the
/// other endpoint of each edge. A stable counting sort: O(E + num_rows), independent of the number
/// of threads. Shares `others` if the keys are already sorted. On CUDA, a stable radix sort on the
/// device that synchronises once, or for 2^31 edges or more a sort on the CPU.
Adjacency sort_edges(const at::Tensor& keys, const at::Tensor& others, std::int64_t num_rows);

/// Returns the edges of `rows`, with rows as sources. Shares `rows.indices` if entry i is edge i.
EdgeList expand_rows(const Adjacency& rows);

/// Counts each id of [0, bound) in `ids`: int64 [bound].
at::Tensor count_ids(const at::Tensor& ids, std::int64_t bound);

/// Returns the power of max(d, 1) for each d of `degrees`, in `dtype`. Throws InvalidArgument
/// unless that is float32 or float64.
at::Tensor degree_factors(const at::Tensor& degrees, DegreePower power, at::ScalarType dtype);

/// Returns the inverse of `permutation` ([E] ids); undefined if that is undefined.
at::Tensor inverted(const at::Tensor& permutation);

/// Returns outer[inner[i]] for each i, both [E] ids; an undefined one is the identity.
at::Tensor composed(const at::Tensor& outer, const at::Tensor& inner);

}  // namespace mezzo::detail
