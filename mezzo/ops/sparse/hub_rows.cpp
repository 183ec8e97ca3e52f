// g-SpMM on the CPU. Rows with very many edges ("hubs") are split into chunks of a fixed number of
// edges, which threads share and whose results are merged in order. One hub then does not occupy a
// single thread, and the bits do not depend on the number of threads. Products are not split.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/kernels/backend.h"
#include "mezzo/ops/device.h"

namespace mezzo::detail {
namespace {

/// Edges of a chunk; rows with more are hubs. At F = 64 a chunk takes some 100 microseconds.
constexpr std::int64_t kChunkEntries = 1 << 15;

struct Hub {
  std::int64_t row, first_chunk, num_chunks;
};

struct Chunk {
  std::int64_t row;
  std::array<std::int64_t, 2> entries;  ///< as the indptr of one row
};

/// False for products: a chunk that overflows times one that underflows is NaN, but the product in
/// sequence may be finite.
bool is_splittable(const kernels::SpmmArgs& args) {
  return !traits_of(args.reduce).multiplies && args.entries.indptr != nullptr &&
         args.out_length > 0;
}

/// The results of the chunks, one row each.
struct Partials {
  at::Tensor values;  ///< sums or extremes, in the accumulator's type: [chunks, out_length]
  at::Tensor edges;   ///< the edges of the extremes, in the type of args.arg
};

/// The operand for a chunk of `row`, whose kernel runs on a single row with index 0.
kernels::Operand operand_at(std::int64_t row, kernels::Operand operand, DType dtype) {
  if (operand.data == nullptr || operand.access != kernels::Access::kRow) return operand;
  const at::ScalarType type = operand.is_accum ? accumulator_of(dtype) : scalar_type_of(dtype);
  const std::int64_t bytes = operand.length * static_cast<std::int64_t>(c10::elementSize(type));
  operand.data = static_cast<const char*>(operand.data) + row * bytes;
  return operand;
}

void find_hubs(const Direction& direction, std::vector<Hub>& hubs, std::vector<Chunk>& chunks) {
  const std::int64_t longest = direction.entries.longest_row;
  if (longest >= 0 && longest <= kChunkEntries) return;
  for (std::int64_t row = 0; row < direction.num_rows; ++row) {
    const std::int64_t begin = direction.indptr[row], end = direction.indptr[row + 1];
    if (end - begin <= kChunkEntries) continue;
    Hub hub{row, static_cast<std::int64_t>(chunks.size()), 0};
    for (std::int64_t entry = begin; entry < end; entry += kChunkEntries, ++hub.num_chunks) {
      chunks.push_back({row, {entry, std::min(entry + kChunkEntries, end)}});
    }
    hubs.push_back(hub);
  }
}

/// The first byte of a row of a contiguous matrix.
char* row_of(const at::Tensor& rows, std::int64_t row) {
  const auto bytes = rows.size(1) * static_cast<std::int64_t>(rows.element_size());
  return static_cast<char*>(rows.mutable_data_ptr()) + row * bytes;
}

Partials partials_of(const kernels::SpmmArgs& args, const std::vector<Chunk>& chunks) {
  const std::array<std::int64_t, 2> sizes = {static_cast<std::int64_t>(chunks.size()),
                                             args.out_length};
  Partials result;
  result.values = at::empty(sizes, accumulator_of(args.dtype));
  if (traits_of(args.reduce).selects)
    result.edges = at::empty(sizes, args.arg_is_int64 ? at::kLong : at::kInt);
  at::parallel_for(0, sizes[0], 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Chunk& chunk = chunks[static_cast<std::size_t>(i)];
      kernels::SpmmArgs part = args;
      part.entries.indptr = chunk.entries.data();
      part.lhs = operand_at(chunk.row, args.lhs, args.dtype);
      part.rhs = operand_at(chunk.row, args.rhs, args.dtype);
      if (args.lhs_scale != nullptr && args.lhs.access == kernels::Access::kRow) {
        const std::size_t bytes = c10::elementSize(accumulator_of(args.dtype));
        part.lhs_scale =
            static_cast<const char*>(args.lhs_scale) + chunk.row * static_cast<std::int64_t>(bytes);
      }
      part.row_begin = 0;
      part.row_end = 1;
      if (traits_of(args.reduce).divides) part.reduce = ReduceOp::kSum;
      part.row_scale = nullptr;
      part.out = row_of(result.values, i);
      part.out_is_accum = true;
      part.arg = traits_of(args.reduce).selects ? row_of(result.edges, i) : nullptr;
      kernels::cpu_backend().run(part);
    }
  });
  return result;
}

/// Merges the extremes of a hub's chunks, in order, into the first: NaN wins, the first wins ties.
template <class Accum, class Id>
void merge_extremes(ReduceOp reduce, const Hub& hub, const Partials& partials) {
  const std::int64_t length = partials.values.size(1);
  auto* value = reinterpret_cast<Accum*>(row_of(partials.values, hub.first_chunk));
  auto* edge = reinterpret_cast<Id*>(row_of(partials.edges, hub.first_chunk));
  for (std::int64_t from = length; from < hub.num_chunks * length; ++from) {
    const std::int64_t to = from % length;
    const bool better = reduce == ReduceOp::kMax ? kernels::Max::better(value[from], value[to])
                                                 : kernels::Min::better(value[from], value[to]);
    if ((better || std::isnan(value[from])) && !std::isnan(value[to])) {
      value[to] = value[from];
      edge[to] = edge[from];
    }
  }
}

void merge_extremes(const kernels::SpmmArgs& args, const Hub& hub, const Partials& partials) {
  const bool in_double = partials.values.scalar_type() == at::kDouble;
  if (args.arg_is_int64) {
    in_double ? merge_extremes<double, std::int64_t>(args.reduce, hub, partials)
              : merge_extremes<float, std::int64_t>(args.reduce, hub, partials);
  } else {
    in_double ? merge_extremes<double, std::int32_t>(args.reduce, hub, partials)
              : merge_extremes<float, std::int32_t>(args.reduce, hub, partials);
  }
}

double row_scale_of(const kernels::SpmmArgs& args, at::ScalarType type, std::int64_t row) {
  if (args.row_scale == nullptr) return 1;
  return type == at::kDouble ? static_cast<const double*>(args.row_scale)[row]
                             : static_cast<double>(static_cast<const float*>(args.row_scale)[row]);
}

void merge_hubs(const kernels::SpmmArgs& args, const Direction& direction,
                const std::vector<Hub>& hubs, const Partials& partials) {
  const std::array<std::int64_t, 2> sizes = {direction.num_rows, args.out_length};
  const at::Tensor rows = at::from_blob(args.out, sizes, scalar_type_of(args.dtype));
  for (const Hub& hub : hubs) {
    const at::Tensor total = partials.values.select(0, hub.first_chunk);
    if (traits_of(args.reduce).selects) {
      merge_extremes(args, hub, partials);
      if (args.arg != nullptr) {
        const at::Tensor edges = at::from_blob(args.arg, sizes, partials.edges.scalar_type());
        edges.select(0, hub.row).copy_(partials.edges.select(0, hub.first_chunk));
      }
    } else {
      for (std::int64_t i = 1; i < hub.num_chunks; ++i) {
        total.add_(partials.values.select(0, hub.first_chunk + i));
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

/// Runs the kernel on the rows [begin, end) except hubs.
void run_other_rows(kernels::SpmmArgs args, const std::vector<Hub>& hubs, std::int64_t begin,
                    std::int64_t end) {
  for (const Hub& hub : hubs) {
    if (hub.row < begin || hub.row >= end) continue;
    args.row_begin = begin;
    args.row_end = hub.row;
    if (begin < hub.row) kernels::cpu_backend().run(args);
    begin = hub.row + 1;
  }
  args.row_begin = begin;
  args.row_end = end;
  if (begin < end) kernels::cpu_backend().run(args);
}

}  // namespace

void OnCpu::run(const kernels::SpmmArgs& args, const Direction& direction,
                std::int64_t row_length) {
  std::vector<Hub> hubs;
  std::vector<Chunk> chunks;
  if (is_splittable(args)) find_hubs(direction, hubs, chunks);
  if (!hubs.empty()) merge_hubs(args, direction, hubs, partials_of(args, chunks));
  kernels::SpmmArgs others = args;
  others.out_streams = streams_result(direction.num_rows * args.out_length, args.dtype);
  parallel_rows(direction, row_length, [&](std::int64_t begin, std::int64_t end) {
    run_other_rows(others, hubs, begin, end);
  });
}

}  // namespace mezzo::detail
