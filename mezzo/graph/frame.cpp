#include "mezzo/graph/frame.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/missing_column.h"
#include "mezzo/graph/selection.h"

namespace mezzo {
namespace {

/// Throws InvalidArgument unless `column` has `num_rows` rows and is on `device`.
void check_column(const std::string& what, const std::string& name, const at::Tensor& column,
                  std::int64_t num_rows, at::Device device) {
  MEZZO_CHECK(column.defined(), "{} column '{}': expected {} rows, got an undefined tensor", what,
              name, num_rows);
  MEZZO_CHECK(column.dim() > 0, "{} column '{}': expected {} rows, got a scalar", what, name,
              num_rows);
  MEZZO_CHECK(column.size(0) == num_rows, "{} column '{}': expected {} rows, got {}", what, name,
              num_rows, column.size(0));
  MEZZO_CHECK(column.device() == device, "{} column '{}': expected on {}, got on {}", what, name,
              device.str(), column.device().str());
}

bool is_present(const at::Tensor& column) {
  return column.defined() && !detail::is_missing_column(column);
}

std::string missing_text(const std::string& what, const std::string& name,
                         const std::vector<std::string>& names) {
  return fmt::format("{} column '{}' is missing; there are: {}", what, name,
                     names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

/// Whether both are dense with equal dtype and row shape.
bool have_same_rows(const at::Tensor& a, const at::Tensor& b) {
  return a.layout() == at::kStrided && b.layout() == at::kStrided &&
         a.scalar_type() == b.scalar_type() && a.sizes().slice(1) == b.sizes().slice(1);
}

/// Returns `num_rows` rows of zeros, shaped as the rows of `column`.
at::Tensor zero_rows(const at::Tensor& column, std::int64_t num_rows) {
  auto shape = column.sizes().vec();
  shape[0] = num_rows;
  return at::zeros(shape, column.options());
}

/// Gathers the rows `ids` of a column. libtorch accumulates the gradient of a 16-bit vector in 16
/// bits, which stagnates if a row repeats often; this uses float32. The gradient of a matrix
/// accumulates in float32 on the CPU, in 16 bits on CUDA.
at::Tensor select_rows(const std::string& name, const at::Tensor& column, const at::Tensor& ids) {
  detail::check_gathers_rows(name, column);
  if (column.dim() != 1 || !at::isReducedFloatingType(column.scalar_type()) ||
      !column.requires_grad()) {
    return column.index_select(0, ids);
  }
  return column.to(at::kFloat).index_select(0, ids).to(column.scalar_type());
}

}  // namespace

Frame::Frame(std::string what, std::int64_t num_rows, at::Device device)
    : what_(std::move(what)),
      num_rows_(num_rows),
      device_(detail::resolve_device(what_ + " frame", device)) {
  MEZZO_CHECK(num_rows >= 0, "{} frame: expected num_rows >= 0, got {}", what_, num_rows);
}

void Frame::set(const std::string& name, const at::Tensor& column) {
  check_column(what_, name, column, num_rows_, device_);
  columns_[name] = column;
}

// A missing column is not an error yet, because an assignment may follow. A proxy class could throw
// on reads, but autograd::Function checks the exact type, treats a proxy as a constant and loses
// the gradient.
at::Tensor& Frame::operator[](const std::string& name) {
  at::Tensor& column = columns_[name];
  if (!is_present(column)) column = detail::missing_column(missing_text(what_, name, names()));
  return column;
}

// A column that the non-const operator[] created but nobody assigned does not exist.
bool Frame::contains(const std::string& name) const {
  const auto column = columns_.find(name);
  return column != columns_.end() && is_present(column->second);
}

const at::Tensor& Frame::operator[](const std::string& name) const {
  MEZZO_CHECK(contains(name), "{}", missing_text(what_, name, names()));
  return columns_.find(name)->second;
}

const at::Tensor& Frame::at(const std::string& name) const {
  const at::Tensor& column = (*this)[name];
  check_column(what_, name, column, num_rows_, device_);
  return column;
}

void Frame::erase(const std::string& name) {
  static_cast<void>(pop(name));
}

at::Tensor Frame::pop(const std::string& name) {
  at::Tensor column = std::as_const(*this)[name];
  columns_.erase(name);
  return column;
}

std::vector<std::string> Frame::names() const {
  std::vector<std::string> names;
  for (const auto& [name, column] : columns_) {
    if (is_present(column)) names.push_back(name);
  }
  return names;
}

void Frame::update(const Columns& columns) {
  for (const auto& [name, column] : columns) {  // check all first, so that an error changes nothing
    check_column(what_, name, column, num_rows_, device_);
  }
  for (const auto& [name, column] : columns) columns_[name] = column;
}

void Frame::update_rows(const at::Tensor& ids, const Columns& columns) {
  const std::string operation = what_ + " frame update_rows";
  const at::Tensor rows = detail::selected_ids(operation, "ids", ids, num_rows_, device_);
  detail::check_distinct(operation, "ids", rows);
  Columns whole;
  for (const auto& [name, column] : columns) {
    check_column(what_, name, column, rows.numel(), device_);
    const at::Tensor old = contains(name) ? at(name) : zero_rows(column, num_rows_);
    MEZZO_CHECK(have_same_rows(old, column),
                "{} column '{}': expected rows as those of {}, got {}{}", what_, name,
                detail::describe(old), detail::describe(column), detail::dense_hint(old));
    whole[name] = old.index_copy(0, rows, column);
  }
  update(whole);
}

Frame Frame::rows(const at::Tensor& ids) const {
  const at::Tensor rows =
      detail::selected_ids(what_ + " frame rows", "ids", ids, num_rows_, device_);
  Frame picked(what_, rows.numel(), device_);
  for (const std::string& name : names()) {
    picked.columns_[name] = select_rows(name, at(name), rows);
  }
  return picked;
}

Frame Frame::to(at::Device device) const {
  Frame moved(what_, num_rows_, device);
  for (const auto& [name, column] : columns_) {
    if (is_present(column)) moved.columns_[name] = column.to(moved.device_);
  }
  return moved;
}

FrameRows::FrameRows(const Frame& frame, at::Tensor ids) : frame_(frame), ids_(std::move(ids)) {}

at::Tensor FrameRows::at(const std::string& column) const {
  const at::Tensor& all = frame_.at(column);
  return ids_.defined() ? select_rows(column, all, ids_) : all;
}

at::Tensor FrameRows::ids() const {
  if (ids_.defined()) return ids_;
  return at::arange(frame_.num_rows(), at::device(frame_.device()).dtype(at::kLong));
}

std::int64_t FrameRows::size() const {
  return ids_.defined() ? ids_.size(0) : frame_.num_rows();
}

FrameRows FrameRows::pick(const at::Tensor& positions) const {
  return {frame_, ids_.defined() ? ids_.index_select(0, positions) : positions};
}

void detail::restore(Frame& frame, const Frame& saved) {
  for (const std::string& name : frame.names()) {
    if (saved.columns().find(name) == saved.columns().end()) frame.erase(name);
  }
  for (const auto& [name, column] : saved.columns()) frame[name] = column;
}

}  // namespace mezzo
