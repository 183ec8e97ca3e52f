#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// Named columns, sorted by name. User-defined functions return these.
using Columns = std::map<std::string, at::Tensor>;

/// The features of one side of a graph (its nodes or its edges): named columns whose first
/// dimension is the row. set() checks the column on write. Assigning through [] does not check;
/// at(), which the library reads through, does.
class MEZZO_API Frame {
 public:
  /// what: the name of a row in errors ("node", "edge", ...).
  Frame(std::string what, std::int64_t num_rows, at::Device device);

  /// Adds or replaces a column. Throws InvalidArgument as at(), without changing anything.
  void set(const std::string& name, const at::Tensor& column);

  /// Returns the column for reading or unchecked assignment. A missing column can only be assigned:
  /// reading its shape or device, or calling an operator on it, throws InvalidArgument that lists
  /// the columns. Use contains(), not defined(), to ask whether a column exists.
  at::Tensor& operator[](const std::string& name);
  /// The column. Throws InvalidArgument that lists the columns if missing.
  const at::Tensor& operator[](const std::string& name) const;

  /// Returns the column. Throws InvalidArgument unless it is present, defined, on the frame's
  /// device and has one row per node or edge.
  const at::Tensor& at(const std::string& name) const;

  bool contains(const std::string& name) const;
  /// Removes a column. Throws InvalidArgument if missing.
  void erase(const std::string& name);
  /// Removes a column and returns it. Throws InvalidArgument if missing.
  at::Tensor pop(const std::string& name);
  std::vector<std::string> names() const;
  std::int64_t num_rows() const { return num_rows_; }
  at::Device device() const { return device_; }
  const Columns& columns() const { return columns_; }

  /// Adds `columns`, replacing those with the same names. Checks as at().
  void update(const Columns& columns);

  /// Writes `columns` ([n, ...]) to the rows `ids` (distinct integers [n], or bool [num_rows] with
  /// n true). Other rows are unchanged, or 0 in a new column. Throws InvalidArgument, without
  /// changing anything, if an existing column has another dtype or row shape. Not in place:
  /// allocates a new, differentiable tensor per column. Synchronises on CUDA.
  void update_rows(const at::Tensor& ids, const Columns& columns);

  /// Gathers the rows `ids` (integers [n], or bool [num_rows]) of every column into a frame of n
  /// rows. Allocates; synchronises on CUDA.
  Frame rows(const at::Tensor& ids) const;
  /// Copies every column to `device`, keeping dtypes.
  Frame to(at::Device device) const;

 private:
  std::string what_;
  std::int64_t num_rows_;
  at::Device device_;
  Columns columns_;
};

/// The rows of a frame that one message-passing step reads: all, or a selection that is gathered
/// per column on access. The frame must outlive it.
class MEZZO_API FrameRows {
 public:
  /// All rows.
  FrameRows(const Frame& frame) : frame_(frame) {}  // NOLINT: converts
  /// ids: int64 [n], rows of the frame.
  FrameRows(const Frame& frame, at::Tensor ids);

  /// [size(), ...]. Throws as Frame::at.
  at::Tensor at(const std::string& column) const;
  /// The ids of the rows in the frame: int64 [size()].
  at::Tensor ids() const;
  std::int64_t size() const;
  at::Device device() const { return frame_.device(); }
  /// The rows at `positions` (int64) among these.
  FrameRows pick(const at::Tensor& positions) const;

 private:
  const Frame& frame_;
  at::Tensor ids_;  ///< undefined: all rows
};

namespace detail {

/// Restores the columns of `frame` from `saved`, an earlier copy, when a local scope ends. Works
/// column by column so that references to unchanged columns stay valid, as in f(model(g),
/// g.ndata()["label"]), where the reference may exist before the model's scope ends. Not exported.
void restore(Frame& frame, const Frame& saved);

}  // namespace detail
}  // namespace mezzo
