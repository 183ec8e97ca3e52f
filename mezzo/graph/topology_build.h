#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/core/type_list.h"
#include "mezzo/graph/topology.h"

/// The library's own: checks of id tensors and builders of the arrays of a Topology. `what` and
/// `operation` open the text of the error.
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

/// How the given edge ids of compressed rows run.
enum class SlotOrder : std::uint8_t {
  kIdentity,   ///< slot i is edge i
  kAscending,  ///< ascending within each row
  kOther,
};

/// The width that keeps a derived graph's ids as wide as these.
constexpr IdWidth width_like(at::ScalarType ids) {
  return ids == at::kLong ? IdWidth::kInt64 : IdWidth::kAutomatic;
}

/// The dtype of ids for these counts. Throws InvalidArgument for a negative count, or where int32
/// is asked for and a count is 2^31 or more.
at::ScalarType choose_id_dtype(std::string_view operation, IdWidth width, std::int64_t num_src,
                               std::int64_t num_dst, std::int64_t num_edges);

/// `ids` as contiguous int32 or int64 (itself where it is). Throws InvalidArgument unless it is a
/// dense integer vector on a CPU or CUDA device.
at::Tensor check_vector(std::string_view operation, std::string_view name, const at::Tensor& ids);

/// Throws InvalidArgument that names the first id outside [0, bound). ids: from check_vector.
/// Synchronises on CUDA.
void check_range(std::string_view operation, std::string_view name, const at::Tensor& ids,
                 std::int64_t bound);

/// Throws InvalidArgument unless `indptr` (from check_vector) runs from 0 to `num_edges` and never
/// falls. Synchronises on CUDA.
void check_indptr(std::string_view operation, const at::Tensor& indptr, std::int64_t num_edges);

/// Throws InvalidArgument unless `edge_ids` (from check_vector) is a permutation; returns how it
/// runs within the rows. Synchronises on CUDA.
SlotOrder check_edge_ids(std::string_view operation, const at::Tensor& indptr,
                         const at::Tensor& edge_ids);

/// Edges grouped by `keys` (in [0, num_rows)), in ascending edge id within a row; `others` is the
/// other end of each edge. A stable counting sort: O(E + num_rows), independent of the number of
/// threads. Shares `others` where the keys are sorted already. On CUDA a stable radix sort on the
/// device that synchronises once; of 2^31 edges or more a round trip through the CPU.
Adjacency sort_edges(const at::Tensor& keys, const at::Tensor& others, std::int64_t num_rows);

/// The edges of `rows`, sources being the rows. Shares `rows.indices` where slot i is edge i.
EdgeList expand_rows(const Adjacency& rows);

/// How often each of [0, bound) stands in `ids`: int64 [bound].
at::Tensor count_ids(const at::Tensor& ids, std::int64_t bound);

/// The position of each number in `permutation` ([E] ids); undefined for an undefined one.
at::Tensor inverted(const at::Tensor& permutation);

/// outer[inner[i]] for each i, both [E] ids; an undefined one leaves numbers as they are.
at::Tensor composed(const at::Tensor& outer, const at::Tensor& inner);

}  // namespace mezzo::detail
