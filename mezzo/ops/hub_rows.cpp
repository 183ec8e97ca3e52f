// g-SpMM on the CPU. Sums, means and extremes of rows with very many slots are cut into pieces of a
// fixed number of slots, which threads share and which are joined in order, so that one hub does
// not keep one thread busy alone and the bits do not depend on the number of threads.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/kernels/backend.h"
#include "mezzo/ops/device.h"

namespace mezzo {

namespace {

/// Rows of more slots are hubs, cut into pieces of as many: at F = 64 a piece is some 100
/// microseconds of work.
constexpr std::int64_t kPieceSlots = 1 << 15;

struct Hub {
  std::int64_t row, first_piece, num_pieces;
};

struct Piece {
  std::int64_t row;
  std::array<std::int64_t, 2> slots;  ///< as the indptr of one row
};

/// A product is not: of a piece that overflows and one that underflows it would be NaN, where the
/// product in order may be a number.
bool is_splittable(const SpmmArgs& args) {
  return !traits_of(args.reduce).multiplies && args.slots.indptr != nullptr && args.out_length > 0;
}

/// What the pieces leave, a row a piece.
struct Partials {
  at::Tensor values;  ///< sums or extremes, in the accumulator's type: [pieces, out_length]
  at::Tensor edges;   ///< of extremes: the edges they are of, in the type of args.arg
};

/// An operand as a piece of `row` reads it, whose own row is 0.
Operand seen_from(std::int64_t row, Operand operand, DType dtype) {
  if (operand.data == nullptr || operand.access != Access::kRow) return operand;
  const at::ScalarType type = operand.wide ? accumulator_of(dtype) : scalar_type_of(dtype);
  const std::int64_t bytes = operand.length * static_cast<std::int64_t>(c10::elementSize(type));
  operand.data = static_cast<const char*>(operand.data) + row * bytes;
  return operand;
}

void find_hubs(const Direction& direction, std::vector<Hub>& hubs, std::vector<Piece>& pieces) {
  for (std::int64_t row = 0; row < direction.num_rows; ++row) {
    const std::int64_t begin = direction.indptr[row], end = direction.indptr[row + 1];
    if (end - begin <= kPieceSlots) continue;
    Hub hub{row, static_cast<std::int64_t>(pieces.size()), 0};
    for (std::int64_t slot = begin; slot < end; slot += kPieceSlots, ++hub.num_pieces) {
      pieces.push_back({row, {slot, std::min(slot + kPieceSlots, end)}});
    }
    hubs.push_back(hub);
  }
}

/// The first byte of a row of a contiguous matrix.
char* row_of(const at::Tensor& rows, std::int64_t row) {
  const auto bytes = rows.size(1) * static_cast<std::int64_t>(rows.element_size());
  return static_cast<char*>(rows.mutable_data_ptr()) + row * bytes;
}

Partials partials_of(const SpmmArgs& args, const std::vector<Piece>& pieces) {
  const std::array<std::int64_t, 2> sizes = {static_cast<std::int64_t>(pieces.size()),
                                             args.out_length};
  Partials made;
  made.values = at::empty(sizes, accumulator_of(args.dtype));
  if (traits_of(args.reduce).selects)
    made.edges = at::empty(sizes, args.arg_wide ? at::kLong : at::kInt);
  at::parallel_for(0, sizes[0], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<std::size_t>(i)];
      SpmmArgs part = args;
      part.slots.indptr = piece.slots.data();
      part.lhs = seen_from(piece.row, args.lhs, args.dtype);
      part.rhs = seen_from(piece.row, args.rhs, args.dtype);
      if (args.lhs_scale != nullptr && args.lhs.access == Access::kRow) {
        const std::size_t bytes = c10::elementSize(accumulator_of(args.dtype));
        part.lhs_scale =
            static_cast<const char*>(args.lhs_scale) + piece.row * static_cast<std::int64_t>(bytes);
      }
      part.row_begin = 0;
      part.row_end = 1;
      if (traits_of(args.reduce).divides) part.reduce = ReduceOp::kSum;
      part.row_scale = nullptr;
      part.out = row_of(made.values, i);
      part.out_wide = true;
      part.arg = traits_of(args.reduce).selects ? row_of(made.edges, i) : nullptr;
      cpu_backend().run(part);
    }
  });
  return made;
}

/// Joins a hub's extremes, in order, into its first piece: NaN wins, of equals the first.
template <class Accum, class Id>
void join_extremes(ReduceOp reduce, const Hub& hub, const Partials& partials) {
  const std::int64_t length = partials.values.size(1);
  auto* value = reinterpret_cast<Accum*>(row_of(partials.values, hub.first_piece));
  auto* edge = reinterpret_cast<Id*>(row_of(partials.edges, hub.first_piece));
  for (std::int64_t from = length; from < hub.num_pieces * length; ++from) {
    const std::int64_t to = from % length;
    const bool better = reduce == ReduceOp::kMax ? Max::better(value[from], value[to])
                                                 : Min::better(value[from], value[to]);
    if ((better || std::isnan(value[from])) && !std::isnan(value[to])) {
      value[to] = value[from];
      edge[to] = edge[from];
    }
  }
}

void join_extremes(const SpmmArgs& args, const Hub& hub, const Partials& partials) {
  const bool in_double = partials.values.scalar_type() == at::kDouble;
  if (args.arg_wide) {
    in_double ? join_extremes<double, std::int64_t>(args.reduce, hub, partials)
              : join_extremes<float, std::int64_t>(args.reduce, hub, partials);
  } else {
    in_double ? join_extremes<double, std::int32_t>(args.reduce, hub, partials)
              : join_extremes<float, std::int32_t>(args.reduce, hub, partials);
  }
}

double row_scale_of(const SpmmArgs& args, at::ScalarType type, std::int64_t row) {
  if (args.row_scale == nullptr) return 1;
  return type == at::kDouble ? static_cast<const double*>(args.row_scale)[row]
                             : static_cast<double>(static_cast<const float*>(args.row_scale)[row]);
}

void store_hubs(const SpmmArgs& args, const Direction& direction, const std::vector<Hub>& hubs,
                const Partials& partials) {
  const std::array<std::int64_t, 2> sizes = {direction.num_rows, args.out_length};
  const at::Tensor rows = at::from_blob(args.out, sizes, scalar_type_of(args.dtype));
  for (const Hub& hub : hubs) {
    const at::Tensor total = partials.values.select(0, hub.first_piece);
    if (traits_of(args.reduce).selects) {
      join_extremes(args, hub, partials);
      if (args.arg != nullptr) {
        const at::Tensor edges = at::from_blob(args.arg, sizes, partials.edges.scalar_type());
        edges.select(0, hub.row).copy_(partials.edges.select(0, hub.first_piece));
      }
    } else {
      for (std::int64_t i = 1; i < hub.num_pieces; ++i) {
        total.add_(partials.values.select(0, hub.first_piece + i));
      }
    }
    if (traits_of(args.reduce).divides) {
      total.div_(static_cast<double>(direction.indptr[hub.row + 1] - direction.indptr[hub.row]));
    }
    if (args.row_scale != nullptr) {
      total.mul_(row_scale_of(args, total.scalar_type(), hub.row));
    }
    rows.select(0, hub.row).copy_(total);
  }
}

/// [begin, end) without the hubs.
void run_others(SpmmArgs args, const std::vector<Hub>& hubs, std::int64_t begin, std::int64_t end) {
  for (const Hub& hub : hubs) {
    if (hub.row < begin || hub.row >= end) continue;
    args.row_begin = begin;
    args.row_end = hub.row;
    if (begin < hub.row) cpu_backend().run(args);
    begin = hub.row + 1;
  }
  args.row_begin = begin;
  args.row_end = end;
  if (begin < end) cpu_backend().run(args);
}

}  // namespace

void OnCpu::run(const SpmmArgs& args, const Direction& direction, std::int64_t row_length) {
  std::vector<Hub> hubs;
  std::vector<Piece> pieces;
  if (is_splittable(args)) find_hubs(direction, hubs, pieces);
  if (!hubs.empty()) store_hubs(args, direction, hubs, partials_of(args, pieces));
  SpmmArgs others = args;
  others.out_streams = streams_result(direction.num_rows * args.out_length, args.dtype);
  parallel_rows(direction, row_length, [&](std::int64_t begin, std::int64_t end) {
    run_others(others, hubs, begin, end);
  });
}

}  // namespace mezzo
