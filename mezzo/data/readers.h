#pragma once

#include <cstdint>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "mezzo/core/error.h"
#include "mezzo/data/dataset.h"
#include "mezzo/data/npy/npz.h"

/// What the readers of this layer share; not for callers of the library. Every error is an IoError
/// that begins with `where`: the file, and the array within.
namespace mezzo::data {

/// No deflate stream grows by a larger factor; what claims to have is damaged.
inline constexpr std::uint64_t kDeflateRatio = 1032;

/// Throws IoError "<where>: <text>" unless `condition` holds.
template <class... Args>
void require(bool condition, const std::string& where, fmt::format_string<Args...> text,
             Args&&... args) {
  if (!condition) [[unlikely]] {
    throw IoError(where + ": " + fmt::format(text, std::forward<Args>(args)...));
  }
}

/// What an IoError says after `where` if libtorch failed with `error`: that memory ran out, or
/// `what` ("cannot be read") and libtorch's own words.
std::string libtorch_fault(std::string_view what, const c10::Error& error);

/// act(), with all errors of libtorch and of the standard library as IoErrors. fault: what they say
/// after `where`, "cannot be read".
template <class Act>
auto with_io_errors(const std::string& where, const char* fault, const Act& act) {
  try {
    return act();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw IoError(where + ": does not fit in memory");
  } catch (const c10::Error& error) {
    throw IoError(where + ": " + libtorch_fault(fault, error));
  } catch (const std::exception& error) {
    throw IoError(fmt::format("{}: {}: {}", where, fault, error.what()));
  }
}

/// The size of a regular file; IoError where there is none (or a folder, pipe or device).
std::uint64_t regular_file_bytes(const std::filesystem::path& path);

/// The contents of a regular file.
std::string read_file(const std::filesystem::path& path);

/// The numbers of a .npy file.
at::Tensor read_npy(const std::filesystem::path& path);

/// "[3, 4]"
std::string shape_text(const at::Tensor& tensor);

/// `tensor` as int64; refuses all but integers.
at::Tensor as_int64(const at::Tensor& tensor, const std::string& where);

/// `tensor` as float32. Refuses float64 that are finite and beyond its range; what is infinite
/// already is validate()'s to refuse.
at::Tensor as_float32(const at::Tensor& tensor, const std::string& where);

/// `tensor` as booleans; refuses all but booleans and integers 0 and 1.
at::Tensor as_mask(const at::Tensor& tensor, const std::string& where);

/// Checks a CSR matrix read from a file and makes it a sparse tensor: float32 [rows, cols], int64
/// indices, columns ascending in each row and distinct (entries of one place are added, as scipy
/// reads them). indptr: integers [rows + 1]; indices: integers [nnz]; values: numbers [nnz].
at::Tensor make_csr(std::int64_t rows, std::int64_t cols, const at::Tensor& indptr,
                    const at::Tensor& indices, const at::Tensor& values, const std::string& where);

/// The CSR matrix of arrays `<prefix>data`, `<prefix>indices`, `<prefix>indptr`, `<prefix>shape`.
at::Tensor read_csr(const NpzFile& file, const std::string& prefix);

/// One edge, by node ids.
using Edge = std::pair<std::int64_t, std::int64_t>;

/// Throws IoError unless both nodes of an edge are in [0, num_nodes).
void require_edge(std::int64_t src, std::int64_t dst, std::int64_t num_nodes,
                  const std::string& where);

/// Gives `dataset` (whose num_nodes is set) the edges in both directions, sorted by source and
/// destination, without self loops and repeated ones.
void set_undirected_edges(Dataset& dataset, const std::vector<Edge>& edges,
                          const std::string& where);

/// Leaves each of the edges src -> dst of `dataset` once, sorted by source and destination.
void merge_parallel_edges(Dataset& dataset);

/// Throws IoError where the memory of the machine has no room for a graph of so many nodes, edges
/// aside: for a number that a file declares and no array bears out.
void require_room(std::int64_t num_nodes, const std::string& where);

/// More classes than this are a mistake, where each node has one.
std::int64_t most_classes(std::int64_t num_nodes);

/// The labels of a data set.
struct NodeLabels {
  at::Tensor labels;     ///< as Dataset::labels; undefined for data without labels
  at::Tensor has_label;  ///< bool [N]
  std::int64_t num_classes = 0;

  bool is_multi_label() const { return labels.defined() && labels.dim() == 2; }
};

/// Labels of integers [N] or [N, 1], at least 0 or kNoLabel. The number of classes is `declared`,
/// or else one more than the largest label; it may not be absurd, since models allocate by it.
/// Throws IoError for other values, and if no node has a label.
NodeLabels node_labels(const at::Tensor& labels, std::optional<std::int64_t> declared,
                       const std::string& where);

/// Labels of multi-label data. entries: [N, C], N and C > 0, of any dtype: 0, 1, or one of -1,
/// kNoEntry and nan for a missing entry. Throws IoError for other values, and if no node has an
/// entry.
NodeLabels node_entries(const at::Tensor& entries, const std::string& where);

/// Sets labels, num_nodes and num_classes.
void set_labels(Dataset& dataset, const NodeLabels& labels);

/// Takes the nodes without a label out of all masks. has_label: bool [N].
void clear_unlabelled(Dataset& dataset, const at::Tensor& has_label);

/// One split of all nodes at random: 60 % train, 20 % val (both rounded down), the rest test.
/// Depends on the number of nodes and the seed alone.
void set_random_split(Dataset& dataset, std::uint64_t seed);

/// Throws InvalidArgument if a named split is asked of data that have none.
void refuse_named_split(const LoadOptions& options, const std::string& where);

/// Throws IoError if the data set has no labels, unless options.labels_optional.
void require_labels(const Dataset& dataset, const LoadOptions& options);

/// The folder of the dictionary files: MEZZO_WORDNET_DIR, or where Debian puts them.
std::filesystem::path wordnet_folder();

}  // namespace mezzo::data
