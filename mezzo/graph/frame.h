#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// Named columns: what user-defined functions return, in the order of the names.
using Columns = std::map<std::string, at::Tensor>;

/// The features of one side of a graph (its nodes or its edges): named columns whose first
/// dimension is the row. set() checks what is written; assigning through [] checks nothing, and the
/// library, which reads through at(), finds a wrong column there.
class MEZZO_API Frame {
 public:
  /// what: how errors call the rows ("node", "edge", ...).
  Frame(std::string what, std::int64_t num_rows, at::Device device);

  /// Writes a column, new or in place of the one of that name. Throws InvalidArgument as at(), and
  /// then changes nothing.
  void set(const std::string& name, const at::Tensor& column);

  /// The column, to read or to assign; the assignment is not checked. A missing column may only be
  /// assigned: to read its shape or device, or to call an operator on it, throws InvalidArgument
  /// that lists the columns. Use contains(), not defined(), to ask whether a column exists.
  at::Tensor& operator[](const std::string& name);
  /// The column. Throws InvalidArgument that lists the columns if missing.
  const at::Tensor& operator[](const std::string& name) const;

  /// The column, checked: present, defined, one row a node or edge, on the frame's device. Throws
  /// InvalidArgument that names the column, expected and given.
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

  /// Takes over `columns`, replacing those of the same names. Checks as at().
  void update(const Columns& columns);

  /// Writes `columns` ([n, ...]) to the rows `ids` (distinct integers [n], or bool [num_rows] with
  /// n true). The other rows keep what they have, or are 0 in a column that was not there; a column
  /// that was keeps its dtype and shape: others are an InvalidArgument, which changes nothing. Not
  /// in place: makes a new tensor for each column, through which gradients flow. Synchronises on
  /// CUDA.
  void update_rows(const at::Tensor& ids, const Columns& columns);

  /// The rows `ids` (integers [n], or bool [num_rows]) of every column, as a frame of n rows.
  /// Allocates; synchronises on CUDA.
  Frame rows(const at::Tensor& ids) const;
  /// Every column on `device`, with its dtype.
  Frame to(at::Device device) const;

 private:
  std::string what_;
  std::int64_t num_rows_;
  at::Device device_;
  Columns columns_;
};

/// The rows of a frame that one step of message passing reads: all, or some, gathered column by
/// column when asked for. Refers to the frame, which has to outlive it.
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

/// Gives `frame` the columns of `saved` again, an earlier copy of it: what a local scope does at
/// its end. Column by column: references to columns that stay must stay valid, as in f(model(g),
/// g.ndata()["label"]), where the reference may be taken before the model's scope ends. Not
/// exported.
void restore(Frame& frame, const Frame& saved);

}  // namespace detail
}  // namespace mezzo
