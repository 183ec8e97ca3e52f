// g-SpMM on the CPU. Sums and means of rows with very many slots are cut into pieces of a fixed
// number of slots, which threads share and which are added in order, so that one hub does not keep
// one thread busy alone and the bits do not depend on the number of threads.
#include <algorithm>
#include <array>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/kernels/backend.h"
#include "mezzo/message_passing/device.h"

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

/// Hubs are found only where a sum can be cut.
bool is_splittable(const SpmmArgs& args) {
  const bool adds = args.reduce == ReduceOp::kSum || args.reduce == ReduceOp::kMean;
  return adds && args.slots.indptr != nullptr;
}

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

/// The sums of the pieces, in the accumulator's type: [pieces, out_length].
at::Tensor sums_of(const SpmmArgs& args, const std::vector<Piece>& pieces) {
  at::Tensor sums = at::empty({static_cast<std::int64_t>(pieces.size()), args.out_length},
                              accumulator_of(args.dtype));
  auto* rows = static_cast<char*>(sums.mutable_data_ptr());
  const auto row_bytes = args.out_length * static_cast<std::int64_t>(sums.element_size());
  at::parallel_for(0, sums.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
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
      part.reduce = ReduceOp::kSum;
      part.row_scale = nullptr;
      part.out = rows + i * row_bytes;
      part.out_wide = true;
      cpu_backend().spmm(part);
    }
  });
  return sums;
}

double row_scale_of(const SpmmArgs& args, at::ScalarType type, std::int64_t row) {
  if (args.row_scale == nullptr) return 1;
  return type == at::kDouble ? static_cast<const double*>(args.row_scale)[row]
                             : static_cast<double>(static_cast<const float*>(args.row_scale)[row]);
}

void store_hubs(const SpmmArgs& args, const Direction& direction, const std::vector<Hub>& hubs,
                const at::Tensor& sums) {
  const at::Tensor rows =
      at::from_blob(args.out, {direction.num_rows, args.out_length}, scalar_type_of(args.dtype));
  for (const Hub& hub : hubs) {
    at::Tensor total = sums.select(0, hub.first_piece).clone();
    for (std::int64_t i = 1; i < hub.num_pieces; ++i) total += sums.select(0, hub.first_piece + i);
    if (args.reduce == ReduceOp::kMean) {
      total /= static_cast<double>(direction.indptr[hub.row + 1] - direction.indptr[hub.row]);
    }
    if (args.row_scale != nullptr) total *= row_scale_of(args, total.scalar_type(), hub.row);
    rows.select(0, hub.row).copy_(total);
  }
}

/// [begin, end) without the hubs.
void run_others(SpmmArgs args, const std::vector<Hub>& hubs, std::int64_t begin, std::int64_t end) {
  for (const Hub& hub : hubs) {
    if (hub.row < begin || hub.row >= end) continue;
    args.row_begin = begin;
    args.row_end = hub.row;
    if (begin < hub.row) cpu_backend().spmm(args);
    begin = hub.row + 1;
  }
  args.row_begin = begin;
  args.row_end = end;
  if (begin < end) cpu_backend().spmm(args);
}

}  // namespace

void OnCpu::run(const SpmmArgs& args, const Direction& direction, std::int64_t row_length) {
  std::vector<Hub> hubs;
  std::vector<Piece> pieces;
  if (is_splittable(args)) find_hubs(direction, hubs, pieces);
  if (!hubs.empty()) store_hubs(args, direction, hubs, sums_of(args, pieces));
  parallel_rows(direction, row_length,
                [&](std::int64_t begin, std::int64_t end) { run_others(args, hubs, begin, end); });
}

}  // namespace mezzo
