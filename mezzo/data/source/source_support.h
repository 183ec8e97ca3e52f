#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/data/readers.h"
#include "mezzo/data/source/graph_source.h"
#include "mezzo/data/source/text_lines.h"

/// Shared by the formats; internal.
namespace mezzo::data {

/// The maximum number of edges in a chunk.
inline constexpr std::int64_t kPieceEdges = std::int64_t{1} << 20;

/// The number of rows in a chunk of float32 features: at most 32 MiB, but at least one row.
std::int64_t rows_of_piece(std::int64_t width);

/// Throws IoError unless the shape is [num_nodes, F] with a sensible F.
void check_feature_shape(const std::vector<std::int64_t>& shape, std::int64_t num_nodes,
                         const std::string& where);

/// The error if a file differs when it is read again.
inline constexpr const char* kFileChanged = "the file has changed while it was read";

/// More nodes than this are an error; below the counts that would overflow.
inline constexpr std::int64_t kMostNodes = std::int64_t{1} << 48;

/// The last part of a path, as the name of a data set; for "." the folder's name.
std::string name_of_path(const std::filesystem::path& path);

/// The name of a file without `.gz` and, before it, `extension`.
std::string name_of_file(const std::filesystem::path& path, std::string_view extension);

/// `path`, or `path`.gz if only that exists.
std::filesystem::path plain_or_packed(const std::filesystem::path& path);

/// The formats of a graph in one text file, plain or gzip.
enum class GraphText : std::uint8_t { kNone, kMatrixMarket, kSnap };

/// The format of a text by its first lines.
GraphText text_by_lines(const std::filesystem::path& path);

/// The format of a file: by its name (.mtx; .txt, .edges and .el), and by its first lines if it is
/// any other .gz file or a .tsv, .edges or .el. kNone for a folder.
GraphText text_by_name(const std::filesystem::path& path);

/// Whether a line of an edge list is a comment, as SNAP (`#`) and other collections (`%`) write it.
inline bool is_snap_comment(std::string_view line) {
  return line.starts_with('#') || line.starts_with('%');
}

/// Takes one edge by node ids.
using TakeEdge = std::function<void(std::int64_t src, std::int64_t dst)>;

/// Collects edges into chunks.
class EdgePieces {
 public:
  explicit EdgePieces(const GraphSource::TakeEdges& take) : take_(take) {}
  void add(std::int64_t src, std::int64_t dst);
  /// Passes on the last chunk.
  void finish();

 private:
  const GraphSource::TakeEdges& take_;
  at::Tensor src_, dst_;
  std::int64_t* src_data_ = nullptr;
  std::int64_t* dst_data_ = nullptr;
  std::int64_t size_ = 0;
};

/// Collects rows of float32 features into chunks.
class RowPieces {
 public:
  RowPieces(std::int64_t width, const GraphSource::TakeRows& take);
  /// The next row to fill: `width` floats, all 0; valid until the next call.
  float* next_row();
  /// Passes on the last chunk.
  void finish();

 private:
  const GraphSource::TakeRows& take_;
  std::int64_t width_;
  std::int64_t capacity_;
  at::Tensor rows_;
  std::int64_t size_ = 0;
};

/// Finds the distinct ids of a stream, in memory proportional to their number.
class IdCollector {
 public:
  void add(std::int64_t id) {
    if (ids_.size() >= limit_) compact();
    ids_.push_back(id);
  }
  /// The ids, ascending.
  std::vector<std::int64_t> finish();

 private:
  void compact();

  std::vector<std::int64_t> ids_;
  std::size_t limit_ = std::size_t{1} << 20;
};

/// The index of an id among ascending distinct ids that are not negative.
class IdRanks {
 public:
  explicit IdRanks(std::vector<std::int64_t> ids);
  std::int64_t size() const { return static_cast<std::int64_t>(ids_.size()); }
  const std::vector<std::int64_t>& ids() const { return ids_; }
  /// -1 if the id is not among them.
  std::int64_t operator()(std::int64_t id) const;

 private:
  std::vector<std::int64_t> ids_;
  std::vector<std::int32_t> table_;  // the index of each id, if the ids are dense enough
};

/// A field as TextLines::integer reads it; nullopt if it is no integer of 64 bits.
std::optional<std::int64_t> integer_of_field(std::string_view field);

/// Whether TextLines::real reads a field, which may be out of range; "nan" and "inf" are numbers.
bool is_number(std::string_view field);

/// The two node ids of a line; below num_nodes, if num_nodes is known.
Edge edge_of_fields(const TextLines& lines, const std::vector<std::string_view>& fields,
                    std::optional<std::int64_t> num_nodes = std::nullopt);

/// A label: kNoLabel for an empty field or nan, else an integer, which may be written as a real
/// number.
std::int64_t label_of_field(const TextLines& lines, std::string_view field);

/// A feature, finite in float32.
float feature_of_field(const TextLines& lines, std::string_view field);

enum class Role : std::uint8_t { kNone, kTrain, kVal, kTest };

/// The split of a data set, built target by target.
class SplitBuilder {
 public:
  explicit SplitBuilder(std::int64_t num_targets, TaskTarget of = TaskTarget::kNode)
      : roles_(static_cast<std::size_t>(num_targets)), of_(of) {}

  /// Sets the role of a target. Throws IoError "<where()>: ..." if the id is out of range or has a
  /// role already.
  template <class Where>
  void assign(std::int64_t id, Role role, Where&& where) {
    if (id < 0 || id >= static_cast<std::int64_t>(roles_.size()) ||
        roles_[static_cast<std::size_t>(id)] != Role::kNone) [[unlikely]] {
      refuse(id, where());
    }
    roles_[static_cast<std::size_t>(id)] = role;
  }

  /// The masks, without the targets that have no label.
  GraphSource::Masks masks(const at::Tensor& has_label) const;

 private:
  [[noreturn]] void refuse(std::int64_t id, const std::string& where) const;

  std::vector<Role> roles_;
  TaskTarget of_;
};

/// Throws IoError if a target has no label. For data without a split: the random split uses
/// every target.
void require_all_labelled(const TargetLabels& labels, const std::string& where);

}  // namespace mezzo::data
