#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "mezzo/kernels/backend.h"

#include "kernels/guarded.h"
#include "support/draw.h"
#include "tests/definitions/gspmm.h"

/// Random arguments of the kernels, also as those of the definitions. Small whole numbers and
/// powers of two keep every step exact, so results are compared with ==.
namespace mezzo::test {

using namespace kernels;  // NOLINT(google-build-using-namespace)

inline bool is_narrow(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

/// `values` in the storage of `dtype`; is_accum: in the accumulator type.
inline GuardedBytes stored(DType dtype, bool is_accum, const std::vector<double>& values) {
  if (dtype == DType::kFloat64) return GuardedBytes(values);
  const std::vector<float> single(values.begin(), values.end());
  if (is_accum || !is_narrow(dtype)) return GuardedBytes(single);
  std::vector<std::uint16_t> bits(values.size());
  cpu_backends()[0].backend->narrow(dtype, single.data(), bits.data(),
                                    static_cast<std::int64_t>(bits.size()));
  return GuardedBytes(bits);
}

inline std::size_t element_size(DType dtype, bool is_accum) {
  if (dtype == DType::kFloat64) return 8;
  return is_accum || !is_narrow(dtype) ? 4 : 2;
}

/// The numbers that `bytes` store.
inline std::vector<double> numbers_in(DType dtype, bool is_accum, const GuardedBytes& bytes) {
  const std::size_t count = bytes.size() / element_size(dtype, is_accum);
  std::vector<double> values(count);
  if (dtype == DType::kFloat64) {
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::vector<float> single(count);
  if (is_accum || !is_narrow(dtype)) {
    if (count > 0) std::memcpy(single.data(), bytes.data(), bytes.size());
  } else {
    cpu_backends()[0].backend->widen(dtype, bytes.data(), single.data(),
                                     static_cast<std::int64_t>(count));
  }
  std::copy(single.begin(), single.end(), values.begin());
  return values;
}

/// `values` rounded to the accumulator and then once to the stored type.
inline std::vector<double> rounded(DType dtype, bool is_accum, const std::vector<double>& values) {
  return numbers_in(dtype, is_accum, stored(dtype, is_accum, values));
}

/// Ids as kernels read them.
struct StoredIds {
  StoredIds(const std::vector<std::int64_t>& ids, bool wide_ids)
      : is_int64(wide_ids),
        bytes(wide_ids ? GuardedBytes(ids)
                       : GuardedBytes(std::vector<std::int32_t>(ids.begin(), ids.end()))) {}
  Ids view() const { return {bytes.data(), is_int64}; }
  bool is_int64;
  GuardedBytes bytes;
};

/// Random CSR rows: empty, short and long rows, with repeated ids.
class RandomEntries {
 public:
  RandomEntries(Draw& draw, std::int64_t most_entries)
      : num_rows(draw.one_of<std::int64_t>({0, 1, 2, 5, 9})),
        num_others(1 + draw.below(6)),
        indptr(entry_counts(draw, num_rows, most_entries)),
        first(node_ids(draw, indptr.back(), num_others)),
        second(permutation(draw, indptr.back())),
        identity_(std::is_sorted(second.begin(), second.end())),
        stored_indptr_(indptr),
        stored_first_(first, draw.coin()),
        stored_second_(second, draw.coin()),
        longest_row_(draw.coin() ? longest(indptr) : -1) {}

  std::int64_t num_edges() const { return indptr.back(); }
  Entries view() const {
    return {.indptr = reinterpret_cast<const std::int64_t*>(stored_indptr_.data()),
            .first = stored_first_.view(),
            .second = identity_ ? Ids{} : stored_second_.view(),
            .longest_row = longest_row_};
  }
  /// The entries as edges from the others to the rows, by the ids in `second`.
  definition::Edges edges() const {
    definition::Edges all{num_others, num_rows, first, {}, second};
    for (std::int64_t row = 0; row < num_rows; ++row) {
      const auto r = static_cast<std::size_t>(row);
      all.dst.insert(all.dst.end(), static_cast<std::size_t>(indptr[r + 1] - indptr[r]), row);
    }
    return all;
  }
  /// The row of an operand with this access that an entry reads.
  std::int64_t id(Access access, std::int64_t row, std::int64_t entry) const {
    if (access == Access::kRow) return row;
    return (access == Access::kFirst ? first : second)[static_cast<std::size_t>(entry)];
  }
  std::int64_t rows_of(Access access) const {
    if (access == Access::kRow) return num_rows;
    return access == Access::kFirst ? num_others : num_edges();
  }

  const std::int64_t num_rows, num_others;
  const std::vector<std::int64_t> indptr, first, second;

 private:
  static std::vector<std::int64_t> entry_counts(Draw& draw, std::int64_t rows, std::int64_t most) {
    std::vector<std::int64_t> starts = {0};
    for (std::int64_t r = 0; r < rows; ++r) {
      const bool hub = draw.below(4) == 0;
      starts.push_back(starts.back() + (hub ? most : draw.below(3)));
    }
    return starts;
  }
  static std::vector<std::int64_t> node_ids(Draw& draw, std::int64_t count, std::int64_t bound) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
    for (std::int64_t& id : ids) id = draw.below(bound);
    return ids;
  }
  static std::vector<std::int64_t> permutation(Draw& draw, std::int64_t count) {
    std::vector<std::int64_t> ids;
    const bool shuffled = draw.coin();
    for (std::int64_t i = 0; i < count; ++i) {
      ids.push_back(i);
      if (shuffled) std::swap(ids.back(), ids[static_cast<std::size_t>(draw.below(i + 1))]);
    }
    return ids;
  }
  static std::int64_t longest(const std::vector<std::int64_t>& starts) {
    std::int64_t most = 0;
    for (std::size_t r = 1; r < starts.size(); ++r)
      most = std::max(most, starts[r] - starts[r - 1]);
    return most;
  }

  bool identity_;
  GuardedBytes stored_indptr_;
  StoredIds stored_first_, stored_second_;
  std::int64_t longest_row_;  ///< -1: not known to the kernel
};

/// The size of a message in three dimensions, and which operand is broadcast along each.
class RandomShape {
 public:
  RandomShape(Draw& draw, BinaryOp op) : dot_(op == BinaryOp::kDot) {
    const bool only_lhs = op == BinaryOp::kCopyLhs, only_rhs = op == BinaryOp::kCopyRhs;
    for (std::size_t d = 0; d < 3; ++d) {
      const bool last = d == 2;
      size_[d] = last ? inner_size(draw) : 1 + draw.below(3);
      const std::int64_t repeats = size_[d] == 1 || (last && dot_) ? 0 : draw.below(3);
      lhs_own_[d] = !only_rhs && repeats != 1;
      rhs_own_[d] = !only_lhs && repeats != 2;
    }
    for (std::int64_t group = 0; group < num_groups(); ++group) {
      lhs_table_.push_back(at(lhs_own_, group, 0));
      rhs_table_.push_back(at(rhs_own_, group, 0));
      out_table_.push_back(dot_ ? group : group * size_[2]);
    }
    // Without tables groups are contiguous, so no operand may be broadcast along one dimension
    // only.
    const bool plain = num_groups() == 1 || (!dot_ && dense(lhs_own_) && dense(rhs_own_));
    tables_ = !plain || draw.coin();
  }

  std::int64_t num_groups() const { return size_[0] * size_[1]; }
  std::int64_t inner() const { return size_[2]; }
  std::int64_t lhs_length() const { return length(lhs_own_); }
  std::int64_t rhs_length() const { return length(rhs_own_); }
  std::int64_t out_length() const { return dot_ ? num_groups() : num_groups() * inner(); }
  definition::Sizes sizes() const { return {size_.begin(), size_.end()}; }
  definition::Sizes lhs_sizes() const { return own_sizes(lhs_own_); }
  definition::Sizes rhs_sizes() const { return own_sizes(rhs_own_); }
  Layout layout() const {
    return {.num_groups = num_groups(),
            .inner = inner(),
            .lhs_offset = tables_ ? lhs_table_.data() : nullptr,
            .rhs_offset = tables_ ? rhs_table_.data() : nullptr,
            .out_offset = tables_ ? out_table_.data() : nullptr,
            .lhs_step = lhs_own_[2] ? 1 : 0,
            .rhs_step = rhs_own_[2] ? 1 : 0,
            .out_step = dot_ ? 0 : 1};
  }
  std::string text() const { return fmt::format("{}x{}x{}", size_[0], size_[1], size_[2]); }

 private:
  using Own = std::array<bool, 3>;
  static std::int64_t inner_size(Draw& draw) {
    const std::vector<std::int64_t> large = {63, 64, 65, 127, 128, 129, 255, 256, 257};
    if (draw.one_in(4)) return draw.one_of(large);
    return draw.one_in(8) ? 32 : 1 + draw.below(40);
  }
  definition::Sizes own_sizes(const Own& own) const {
    definition::Sizes sizes;
    for (std::size_t d = 0; d < 3; ++d) sizes.push_back(own[d] ? size_[d] : 1);
    return sizes;
  }
  std::int64_t length(const Own& own) const { return definition::product(own_sizes(own)); }
  bool dense(const Own& own) const { return length(own) == num_groups() * inner(); }
  std::int64_t at(const Own& own, std::int64_t group, std::int64_t d) const {
    const std::array<std::int64_t, 3> index = {group / size_[1], group % size_[1], d};
    std::int64_t place = 0;
    for (std::size_t i = 0; i < 3; ++i) place = own[i] ? place * size_[i] + index[i] : place;
    return place;
  }

  bool dot_, tables_ = false;
  std::array<std::int64_t, 3> size_{};
  Own lhs_own_{}, rhs_own_{};
  std::vector<std::int64_t> lhs_table_, rhs_table_, out_table_;
};

/// The nodes or edges whose rows an operand with this access has; see RandomEntries::edges.
inline Target target_of(Access access) {
  return access == Access::kRow     ? Target::kDst
         : access == Access::kFirst ? Target::kSrc
                                    : Target::kEdge;
}

/// Rows of an operand, as float64 and as kernels read them.
class RandomRows {
 public:
  RandomRows(Draw& draw, const RandomEntries& entries, DType dtype, std::int64_t row_length,
             const std::vector<double>& from, bool used = true)
      : access(draw.one_of<Access>({Access::kRow, Access::kFirst, Access::kSecond})),
        length(row_length),
        is_accum(is_narrow(dtype) && draw.below(4) == 0),
        values(draw.numbers(used ? entries.rows_of(access) * row_length : 0, from)),
        used_(used),
        stored_(stored(dtype, is_accum, values)) {}

  Operand view() const {
    return {.data = used_ ? stored_.data() : nullptr,
            .is_accum = is_accum,
            .access = access,
            .length = length};
  }
  /// As rows of a graph's nodes or edges; `trailing`: the sizes of a row.
  definition::Array array(definition::Sizes trailing) const {
    const auto rows = static_cast<std::int64_t>(values.size()) / length;
    trailing.insert(trailing.begin(), rows);
    return {std::move(trailing), values};
  }

  const Access access;
  const std::int64_t length;
  const bool is_accum;
  const std::vector<double> values;

 private:
  bool used_;
  GuardedBytes stored_;
};

/// A message of every entry, with random operands.
struct RandomMessage {
  RandomMessage(Draw& draw, BinaryOp binary_op, DType type, std::int64_t most_entries,
                const std::vector<double>& lhs_from)
      : op(binary_op),
        dtype(type),
        entries(draw, most_entries),
        shape(draw, binary_op),
        lhs(draw, entries, type, shape.lhs_length(), lhs_from, op != BinaryOp::kCopyRhs),
        rhs(draw, entries, type, shape.rhs_length(), {-2, -1, 1, 2}, op != BinaryOp::kCopyLhs) {}

  definition::Message message() const {
    return {.edges = edges,
            .op = op,
            .lhs = lhs_array,
            .rhs = rhs_array,
            .lhs_target = target_of(lhs.access),
            .rhs_target = target_of(rhs.access),
            .dimensions = shape.sizes()};
  }
  std::string text() const {
    return fmt::format("{} {} {} rows, {} edges, {}", name_of(DTypes{}, dtype),
                       name_of(BinaryOps{}, op), entries.num_rows, entries.num_edges(),
                       shape.text());
  }

  BinaryOp op;
  DType dtype;
  RandomEntries entries;
  RandomShape shape;
  RandomRows lhs, rhs;
  definition::Edges edges = entries.edges();
  definition::Array lhs_array = lhs.array(shape.lhs_sizes()),
                    rhs_array = rhs.array(shape.rhs_sizes());
};

}  // namespace mezzo::test
