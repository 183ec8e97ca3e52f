#pragma once

#include <cstdint>
#include <filesystem>
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

/// Gives `dataset` (whose num_nodes is set) the edges in both directions, sorted by source and
/// destination, without self loops and repeated ones.
void set_undirected_edges(Dataset& dataset, const std::vector<Edge>& edges,
                          const std::string& where);

/// Gives `dataset` (whose num_nodes is set) these edges, in this order, with all loops and repeated
/// ones.
void set_directed_edges(Dataset& dataset, const std::vector<Edge>& edges, const std::string& where);

/// Throws IoError where the memory of the machine has no room for a graph of so many nodes, edges
/// aside: for a number that a file declares and no array bears out.
void require_room(std::int64_t num_nodes, const std::string& where);

/// More classes than this are a mistake, where each node has one.
std::int64_t most_classes(std::int64_t num_nodes);

/// Sets labels, num_nodes and num_classes. labels: integers [N] or [N, 1], not negative. The number
/// of classes is `declared`, or else one more than the largest label; it may not be absurd, since
/// models allocate by it.
void set_labels(Dataset& dataset, const at::Tensor& labels, std::optional<std::int64_t> declared,
                const std::string& where);

/// As set_labels, but a node may have kNoLabel. Returns which nodes have a label, as bool [N].
at::Tensor set_some_labels(Dataset& dataset, const at::Tensor& labels,
                           std::optional<std::int64_t> declared, const std::string& where);

/// Sets the labels of multi-label data, num_nodes and num_classes. entries: [N, C], N and C > 0, of
/// any dtype: 0, 1, or one of -1, kNoEntry and nan where an entry is missing. Returns which nodes
/// have an entry, as bool [N]. Throws IoError for other values, and where no node has one.
at::Tensor set_entries(Dataset& dataset, const at::Tensor& entries, const std::string& where);

/// Takes the nodes without a label out of all masks. has_label: bool [N].
void clear_unlabelled(Dataset& dataset, const at::Tensor& has_label);

/// One split of all nodes at random: 60 % train, 20 % val (both rounded down), the rest test.
/// Depends on the number of nodes and the seed alone.
void set_random_split(Dataset& dataset, std::uint64_t seed);

/// Throws InvalidArgument if a named split is asked of data that have none.
void refuse_named_split(const LoadOptions& options, const std::string& where);

/// A neutral folder: edge_index.npy int [2, E], taken as it is; features.npz (CSR) or features.npy
/// or neither; labels.npy int [N] or [N, 1], -1 where there is none, or for multi-label data [N, C]
/// as for set_entries (without the file there are no labels and may be no masks);
/// {train,val,test}_mask[_NAME].npy bool [N] or [N, S]; meta.json, of which name, metric,
/// class_names and the counts num_nodes, num_edges, num_features, num_classes count. Without any
/// masks: a random split, and every node has a label.
Dataset read_neutral(const std::filesystem::path& folder, const LoadOptions& options);

/// The names of the Planetoid sets (`ind.<name>.graph`) of a folder, sorted.
std::vector<std::string> planetoid_names(const std::filesystem::path& folder);

/// The Planetoid files allx, ally, tx, ty, y, graph and test.index of `<folder>/ind.<name>`; x
/// repeats the first rows of allx and is not read. Train: the rows of y; val: the next 500, or all
/// of allx that is left; test: test.index. Ids that test.index leaves out get zero features, no
/// label and no mask; a row of zeros in ally or ty is no label either.
Dataset read_planetoid(const std::filesystem::path& folder, const std::string& name,
                       const LoadOptions& options);

/// A gnn-benchmark npz (Shchur et al.): adj_*, attr_* or attr_matrix or neither, labels or labels_*
/// (one entry a row), class_names. Edges become undirected; entries of value 0 are none. Has no
/// split: a random one. Class names stored as Python objects are left out.
Dataset read_gnn_benchmark(const NpzFile& file, const LoadOptions& options);

/// An npz of the heterophilous-graphs collection (Platonov et al.): node_features, node_labels,
/// edges [E, 2], {train,val,test}_masks [S, N]. Edges become undirected, but stay as they are where
/// the name of the file has "directed", as in the collection's own loader. Sets of two classes are
/// judged by ROC AUC, as in the paper.
Dataset read_heterophilous(const NpzFile& file, const LoadOptions& options);

/// The folder of the dictionary files: MEZZO_WORDNET_DIR, or where Debian puts them.
std::filesystem::path wordnet_folder();

/// WordNet's data.noun, data.verb, data.adj and data.adv. Nodes: synsets, file by file, in the
/// order of the files. Edges: pointers of all types, undirected. Labels: the 45 lexicographer
/// files. Features: how often the gloss (definitions and examples) has each word; a word is a
/// longest run of the letters a to z after lower-casing, and counts if at least ten glosses have
/// it; columns in alphabetical order. The reference recipe divides rows by their sums
/// (LoadOptions::normalize_features). A random split.
Dataset read_wordnet(const std::filesystem::path& folder, const LoadOptions& options);

}  // namespace mezzo::data
