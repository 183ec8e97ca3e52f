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
#include "mezzo/core/parse.h"
#include "mezzo/data/dataset.h"
#include "mezzo/data/npy/npz.h"

/// Shared by the readers of this layer; internal. Every error is an IoError that begins with
/// `where`: the file and the array.
namespace mezzo::data {

/// The largest expansion of a deflate stream; a file that claims more is damaged.
inline constexpr std::uint64_t kDeflateRatio = 1032;

/// Throws IoError "<where>: <text>" unless `condition` holds.
template <class... Args>
void require(bool condition, const std::string& where, fmt::format_string<Args...> text,
             Args&&... args) {
  if (!condition) [[unlikely]] {
    throw IoError(where + ": " + fmt::format(text, std::forward<Args>(args)...));
  }
}

/// The text of an IoError after `where` if libtorch failed with `error`: out of memory, or `what`
/// ("cannot be read") and libtorch's message.
std::string libtorch_fault(std::string_view what, const c10::Error& error);

/// Runs act() and turns all errors of libtorch and the standard library into IoErrors. fault: their
/// text after `where`, "cannot be read".
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

/// The size of a regular file. Throws IoError if it is missing or a folder, pipe or device.
std::uint64_t regular_file_bytes(const std::filesystem::path& path);

/// The contents of a regular file.
std::string read_file(const std::filesystem::path& path);

/// The numbers of a .npy file.
at::Tensor read_npy(const std::filesystem::path& path);

/// "[3, 4]"
std::string shape_text(const at::Tensor& tensor);

/// `tensor` as int64; accepts integers only.
at::Tensor as_int64(const at::Tensor& tensor, const std::string& where);

/// `tensor` as float32. Rejects finite float64 values beyond its range; validate() rejects
/// infinities.
at::Tensor as_float32(const at::Tensor& tensor, const std::string& where);

/// `tensor` as booleans; accepts booleans and the integers 0 and 1.
at::Tensor as_mask(const at::Tensor& tensor, const std::string& where);

/// Checks a CSR matrix read from a file and returns it as a sparse tensor: float32 [rows, cols],
/// int64 indices, columns ascending and distinct in each row (duplicate entries are added, as in
/// scipy). indptr: integers [rows + 1]; indices: integers [nnz]; values: numbers [nnz].
at::Tensor make_csr(std::int64_t rows, std::int64_t cols, const at::Tensor& indptr,
                    const at::Tensor& indices, const at::Tensor& values, const std::string& where);

/// The CSR matrix of arrays `<prefix>data`, `<prefix>indices`, `<prefix>indptr`, `<prefix>shape`.
at::Tensor read_csr(const NpzFile& file, const std::string& prefix);

/// One edge, by node ids.
using Edge = std::pair<std::int64_t, std::int64_t>;

/// Throws IoError unless both nodes of an edge are in [0, num_nodes).
void require_edge(std::int64_t src, std::int64_t dst, std::int64_t num_nodes,
                  const std::string& where);

/// Sets the edges of `dataset` (whose num_nodes is set): both directions, sorted by source and
/// destination, without self loops and duplicates.
void set_undirected_edges(Dataset& dataset, const std::vector<Edge>& edges,
                          const std::string& where);

/// Sorts the edges of `dataset` by source and destination and removes duplicates.
void merge_parallel_edges(Dataset& dataset);

/// Throws IoError if a graph of that many nodes cannot fit in the machine's memory, not counting
/// edges. For counts that a file declares but no array confirms.
void require_room(std::int64_t num_nodes, const std::string& where);

/// Throws IoError if float32 [rows, columns] cannot fit in the machine's memory.
void require_room_for(std::int64_t rows, std::int64_t columns, const std::string& where);

/// More classes than this are an error if each node has one label.
std::int64_t most_classes(std::int64_t num_nodes);

/// parse(), which throws IoError.
template <class List>
auto parse_in_file(List list, const std::string& what, const std::string& text) {
  try {
    return parse(list, what, text);
  } catch (const InvalidArgument& fault) {
    throw IoError(fault.what());
  }
}

/// The labels of a data set.
struct TargetLabels {
  at::Tensor labels = {};     ///< as Dataset::labels; undefined without labels
  at::Tensor has_label = {};  ///< bool [T]
  std::int64_t num_classes = 0;
  TaskTarget target = TaskTarget::kNode;
};

/// What labels in the form of Dataset::labels are; kClass if undefined.
LabelKind label_kind_of(const at::Tensor& labels);

/// What labels of a file are if nothing says it: several columns of 0, 1 and missing entries are
/// kMultiLabel, integers kClass, others kNumbers.
LabelKind label_kind_of_file(const at::Tensor& labels);

/// bool [T]: which of such labels are there.
at::Tensor has_label(const at::Tensor& labels);

/// Throws InvalidArgument if another task is wanted than that of the labels.
void check_task(Task task, std::optional<Task> wanted, const std::string& origin);

/// The metric of data that name none: accuracy, micro F1 or R².
Metric usual_metric(LabelKind labels);

/// Labels of integers [T] or [T, 1], at least 0 or kNoLabel. The number of classes is `declared`,
/// or one more than the largest label, within a limit because models allocate by it. Throws IoError
/// for other values, and if no target has a label. of: the word for a target in errors, as below.
TargetLabels class_labels(const at::Tensor& labels, std::optional<std::int64_t> declared,
                          const std::string& where, TaskTarget of = TaskTarget::kNode);

/// Labels of multi-label data. entries: [T, C], T and C > 0, of any dtype: 0, 1, or one of -1,
/// kNoEntry and nan for a missing entry. Throws IoError for other values, and if no target has an
/// entry.
TargetLabels entry_labels(const at::Tensor& entries, const std::string& where,
                          TaskTarget of = TaskTarget::kNode);

/// Labels that are numbers. numbers: [T] or [T, C], T and C > 0, of any real dtype; nan for an
/// unknown one. Throws IoError for inf, and if no target has a number.
TargetLabels number_labels(const at::Tensor& numbers, const std::string& where,
                           TaskTarget of = TaskTarget::kNode);

/// Sets labels and num_classes, and num_nodes, of which each has a label.
void set_labels(Dataset& dataset, const TargetLabels& labels);

/// Removes the targets without a label from all masks. has_label: bool [T].
void clear_unlabelled(Dataset& dataset, const at::Tensor& has_label);

/// One split of all targets at random: 60 % train, 20 % val (both rounded down), the rest test.
/// Depends only on the number of targets and the seed.
void set_random_split(Dataset& dataset, std::uint64_t seed);

/// The numbers below `count` in a random order, which depends only on the count and the seed.
std::vector<std::int64_t> random_order(std::int64_t count, std::uint64_t seed);

/// Makes the edges of `dataset` its links: labels of 1, edges as src and dst, classes of edges as
/// edge types. A reader that has masks of edges sets them, the metric and the target kLink before;
/// else the split is random (LoadOptions::split_seed) without self loops, and the metric ROC AUC.
/// Throws IoError if an edge has no class, and for fewer than three pairs of nodes to split.
void set_links(Dataset& dataset, const LoadOptions& options);

/// Calls act(name, nodes) for each array of negative pairs, defined or not: "val_negatives" for the
/// pairs, "val_negative_src", "val_negative_dst", and those of "train" and "test". negatives: a
/// LinkNegatives, whose arrays act may set.
template <class Negatives, class Act>
void for_each_negatives(Negatives&& negatives, const Act& act) {
  const auto of_role = [&](const std::string& role, auto& pairs) {
    act(role + "_negatives", pairs.pairs);
    act(role + "_negative_src", pairs.src);
    act(role + "_negative_dst", pairs.dst);
  };
  of_role("train", negatives.train);
  of_role("val", negatives.val);
  of_role("test", negatives.test);
}

/// Throws InvalidArgument if a named split is requested and the data have none.
void refuse_named_split(const LoadOptions& options, const std::string& where);

/// Throws IoError if the data set has no labels, unless options.labels_optional; as
/// require_one_task if it has several.
void require_labels(const Dataset& dataset, const LoadOptions& options);

/// Throws InvalidArgument if the labels of several tasks are there and none was chosen.
void require_one_task(const std::vector<Task>& tasks, const at::Tensor& labels,
                      const std::string& origin);

/// The folder of the dictionary files: MEZZO_WORDNET_DIR, or the folder of Debian's package.
std::filesystem::path wordnet_folder();

}  // namespace mezzo::data
