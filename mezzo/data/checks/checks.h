#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/ScalarType.h>

#include "mezzo/data/dataset.h"
#include "mezzo/data/readers.h"

/// Dataset::validate(); internal. Each function throws InvalidArgument with the name of the data
/// set and the fault, and expects those before it to have passed.
namespace mezzo::data {

/// Edges, their weights, features and types, and graphs.
void check_edges(const Dataset& dataset);
/// Labels, masks, and what only links have.
void check_targets(const Dataset& dataset);
/// Features of nodes, unless they are mapped.
void check_features(const Dataset& dataset);
/// What only a part has.
void check_part(const Dataset& dataset);

/// The base of the checks of one data set; messages begin with its name.
class DatasetCheck {
 public:
  explicit DatasetCheck(const Dataset& dataset) : data_(dataset) {}

 protected:
  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) [[unlikely]] {
      throw InvalidArgument("data set '" + data_.name +
                            "': " + fmt::format(text, std::forward<Args>(args)...));
    }
  }

  void check_column(const at::Tensor& column, at::ScalarType dtype, std::int64_t dimensions,
                    const char* what) const {
    check(column.defined(), "{} is undefined", what);
    check(column.is_cpu() && column.layout() == at::kStrided && column.scalar_type() == dtype &&
              column.dim() == dimensions,
          "{}: expected {} of {} dimensions on the CPU, got {} {}", what,
          c10::getDtypeNames(dtype).first, dimensions,
          c10::getDtypeNames(column.scalar_type()).first, shape_text(column));
  }

  void check_range(const at::Tensor& column, std::int64_t bound, const char* what) const {
    const at::Tensor values = column.contiguous();
    const auto* value = values.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      check(value[i] >= 0 && value[i] < bound, "{}: item {} is {}, outside [0, {})", what, i,
            value[i], bound);
    }
  }

  template <class T>
  void check_finite(const at::Tensor& values, const char* what) const {
    const auto* value = values.const_data_ptr<T>();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const auto number = static_cast<float>(value[i]);
      if (std::isfinite(number)) continue;
      const std::int64_t width = values.dim() == 2 ? values.size(1) : 0;
      const std::string place = width > 0 ? fmt::format("row {}, column {}", i / width, i % width)
                                          : fmt::format("stored value {}", i);
      check(false, "{}: {} is {}, expected finite numbers", what, place, number);
    }
  }

  /// The first index in [0, count) with bad(index), or count. Every thread checks a part.
  template <class Bad>
  static std::int64_t first_bad(std::int64_t count, const Bad& bad) {
    constexpr std::int64_t kItemsPerCheck = 1 << 16;
    std::atomic<std::int64_t> first = count;
    at::parallel_for(0, count, kItemsPerCheck, [&](std::int64_t begin, std::int64_t end) {
      std::int64_t i = begin;
      while (i < end && !bad(i)) ++i;
      std::int64_t least = first.load();
      while (i < end && i < least && !first.compare_exchange_weak(least, i)) {
      }
    });
    return first.load();
  }

  std::string_view target() const { return name_of(TaskTargets{}, data_.target); }

  const Dataset& data_;
};

}  // namespace mezzo::data
