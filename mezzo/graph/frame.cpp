#include "mezzo/graph/frame.h"

#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/topology_build.h"

namespace mezzo {
namespace {

/// Throws InvalidArgument unless `column` is a row for each of `num_rows`, on `device`.
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

}  // namespace

Frame::Frame(std::string what, std::int64_t num_rows, at::Device device)
    : what_(std::move(what)),
      num_rows_(num_rows),
      device_(detail::resolve_device(what_ + " frame", device)) {
  MEZZO_CHECK(num_rows >= 0, "{} frame: expected num_rows >= 0, got {}", what_, num_rows);
}

at::Tensor& Frame::operator[](const std::string& name) {
  return columns_[name];
}

// A column that was only named (by the writing operator) and never assigned is not there.
bool Frame::contains(const std::string& name) const {
  const auto found = columns_.find(name);
  return found != columns_.end() && found->second.defined();
}

const at::Tensor& Frame::operator[](const std::string& name) const {
  MEZZO_CHECK(contains(name), "{} column '{}' is missing; there are: {}", what_, name,
              names().empty() ? "none" : fmt::format("{}", fmt::join(names(), ", ")));
  return columns_.find(name)->second;
}

const at::Tensor& Frame::at(const std::string& name) const {
  const at::Tensor& column = (*this)[name];
  check_column(what_, name, column, num_rows_, device_);
  return column;
}

void Frame::erase(const std::string& name) {
  static_cast<void>(std::as_const(*this)[name]);  // the error for a missing one
  columns_.erase(name);
}

std::vector<std::string> Frame::names() const {
  std::vector<std::string> found;
  for (const auto& [name, column] : columns_) {
    if (column.defined()) found.push_back(name);
  }
  return found;
}

void Frame::update(const Columns& columns) {
  for (const auto& [name, column] : columns) {  // all before any, so that an error changes nothing
    check_column(what_, name, column, num_rows_, device_);
  }
  for (const auto& [name, column] : columns) columns_[name] = column;
}

Frame Frame::rows(const at::Tensor& ids) const {
  const std::string operation = what_ + " frame rows";
  const at::Tensor rows = detail::check_vector(operation, "ids", ids).to(at::kLong);
  MEZZO_CHECK(rows.device() == device_, "{}: expected ids on {}, got {}", operation, device_.str(),
              rows.device().str());
  detail::check_range(operation, "ids", rows, num_rows_);
  Frame picked(what_, rows.numel(), device_);
  for (const std::string& name : names()) {
    picked.columns_[name] = at(name).index_select(0, rows);
  }
  return picked;
}

Frame Frame::to(at::Device device) const {
  Frame moved(what_, num_rows_, device);
  for (const auto& [name, column] : columns_) {
    if (column.defined()) moved.columns_[name] = column.to(moved.device_);
  }
  return moved;
}

}  // namespace mezzo
