#include "mezzo/message_passing/blocked_product.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/kernels/backend.h"
#include "mezzo/message_passing/arguments.h"
#include "mezzo/message_passing/float32_product.h"

namespace mezzo {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

/// Columns of a tile of the rows that are widened.
constexpr std::int64_t kTileColumns = 1024;

/// Columns of a tile of a sum that is read and written with each block of rows.
constexpr std::int64_t kTileOfSum = 640;

/// From here on the threads take tiles; below, the tile is the whole and they share its product.
constexpr std::int64_t kRowsToShare = 2048;

void convert(const at::Tensor& from, const at::Tensor& to) {
  const CpuBackend& backend = cpu_backend();
  const bool widening = to.scalar_type() == at::kFloat;
  const DType narrow = dtype_of("linear", (widening ? from : to).scalar_type());
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = static_cast<char*>(to.mutable_data_ptr());
  constexpr std::int64_t kGrain = 1 << 14;
  at::parallel_for(0, from.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const char* s = source + begin * static_cast<std::int64_t>(from.element_size());
    char* t = target + begin * static_cast<std::int64_t>(to.element_size());
    if (widening) {
      backend.widen(narrow, s, reinterpret_cast<float*>(t), end - begin);
    } else {
      backend.narrow(narrow, reinterpret_cast<const float*>(s), t, end - begin);
    }
  });
}

/// convert() of some columns of a wider matrix.
void widen_rows(const at::Tensor& from, const at::Tensor& to) {
  const CpuBackend& backend = cpu_backend();
  const DType narrow = dtype_of("linear", from.scalar_type());
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* target = to.mutable_data_ptr<float>();
  const std::int64_t columns = from.size(1);
  const std::int64_t stride = from.stride(0) * static_cast<std::int64_t>(from.element_size());
  constexpr std::int64_t kGrainRows = 64;
  at::parallel_for(0, from.size(0), kGrainRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      backend.widen(narrow, source + row * stride, target + row * columns, columns);
    }
  });
}

/// Ranges of near equal length, none longer than `longest`.
class Tiles {
 public:
  Tiles(std::int64_t length, std::int64_t longest)
      : length_(length), count_(std::max<std::int64_t>(1, (length + longest - 1) / longest)) {}

  std::int64_t count() const { return count_; }
  std::int64_t begin(std::int64_t i) const { return length_ * i / count_; }
  std::int64_t size(std::int64_t i) const { return begin(i + 1) - begin(i); }
  std::int64_t largest() const { return (length_ + count_ - 1) / count_; }
  at::Tensor of(const at::Tensor& t, std::int64_t dim, std::int64_t i) const {
    return t.narrow(dim, begin(i), size(i));
  }

 private:
  std::int64_t length_, count_;
};

/// A float32 buffer for tiles of up to rows x columns.
class TileBuffer {
 public:
  TileBuffer(std::int64_t rows, std::int64_t columns)
      : memory_(at::empty({rows * columns}, at::kFloat)) {}

  /// `from`, whose rows are dense, widened.
  at::Tensor widen(const at::Tensor& from) const {
    const at::Tensor tile = memory_.narrow(0, 0, from.numel()).view(from.sizes());
    if (from.is_contiguous()) {
      convert(from, tile);
    } else {
      widen_rows(from, tile);
    }
    return tile;
  }

 private:
  at::Tensor memory_;
};

/// Calls visit(begin, end) on ranges of [0, count), on several threads where `shared`.
template <class Visit>
void visit_ranges(bool shared, std::int64_t count, const Visit& visit) {
  const auto guarded = [&visit](std::int64_t begin, std::int64_t end) {
    // Other threads know nothing of the dispatcher's state of this one.
    const at::AutoDispatchBelowADInplaceOrView below;
    visit(begin, end);
  };
  if (shared) {
    at::parallel_for(0, count, 1, guarded);
  } else {
    guarded(0, count);
  }
}

}  // namespace

at::Tensor widened(const at::Tensor& t) {
  if (t.scalar_type() == at::kFloat) return t;
  const at::Tensor given = t.contiguous();
  at::Tensor wide = at::empty(given.sizes(), given.options().dtype(at::kFloat));
  convert(given, wide);
  return wide;
}

at::Tensor blocked_product(const at::Tensor& x, const at::Tensor& factor,
                           const OptionalTensor& bias) {
  const std::int64_t rows = x.size(0);
  const at::Tensor given = x.contiguous();
  at::Tensor out = at::empty({rows, factor.size(1)}, given.options());
  const OptionalTensor wide_bias = bias ? OptionalTensor(widened(*bias)) : std::nullopt;
  const bool shared = rows >= kRowsToShare;
  const Tiles tiles(given.size(1), kTileColumns);
  const Tiles blocks(rows, shared ? float32_tile_rows(tiles.largest()) : kRowsToShare);
  std::vector<at::Tensor> factors;
  for (std::int64_t t = 0; t < tiles.count(); ++t) {
    factors.push_back(tiles.count() == 1 ? factor : tiles.of(factor, 0, t).contiguous());
  }
  visit_ranges(shared, blocks.count(), [&](std::int64_t begin, std::int64_t end) {
    const TileBuffer buffer(blocks.largest(), tiles.largest());
    for (std::int64_t block = begin; block < end; ++block) {
      const at::Tensor from = blocks.of(given, 0, block);
      at::Tensor sum = float32_product(buffer.widen(tiles.of(from, 1, 0)), factors[0], wide_bias);
      for (std::int64_t t = 1; t < tiles.count(); ++t) {
        add_float32_product(sum, buffer.widen(tiles.of(from, 1, t)), factors[t]);
      }
      convert(sum, blocks.of(out, 0, block));
    }
  });
  return out;
}

at::Tensor blocked_transposed_product(const at::Tensor& a, const at::Tensor& b) {
  constexpr std::int64_t kMostGroups = 32, kSums = 1 << 24;  // float32: 64 MiB
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  const std::int64_t rows = left.size(0), heights = left.size(1), columns = right.size(1);
  const bool shared = rows >= kRowsToShare;
  const Tiles tiles(columns, kTileOfSum);
  const std::int64_t widest = std::max(heights, tiles.largest());
  const Tiles blocks(rows, shared ? float32_tile_rows(widest) : kRowsToShare);
  const std::int64_t fit = kSums / std::max<std::int64_t>(1, heights * columns);
  const std::int64_t most = shared ? std::min({fit, kMostGroups, blocks.count()}) : 1;
  std::int64_t groups = 1;  // a power of 2, which mostly divides among threads
  while (2 * groups <= most) groups *= 2;
  const at::Tensor sums = at::zeros({groups, heights, columns}, left.options().dtype(at::kFloat));
  visit_ranges(groups > 1, groups, [&](std::int64_t first, std::int64_t last) {
    const TileBuffer left_buffer(blocks.largest(), heights);
    const TileBuffer right_buffer(blocks.largest(), tiles.largest());
    for (std::int64_t group = first; group < last; ++group) {
      const std::int64_t begin = blocks.count() * group / groups;
      const std::int64_t end = blocks.count() * (group + 1) / groups;
      // A tile of the sum stays in the cache while the rows pass by; those of `a` are widened anew.
      for (std::int64_t t = 0; t < tiles.count(); ++t) {
        const at::Tensor sum = tiles.of(sums[group], 1, t);
        for (std::int64_t block = begin; block < end; ++block) {
          const at::Tensor x = left_buffer.widen(blocks.of(left, 0, block)).t();
          add_float32_product(sum, x,
                              right_buffer.widen(tiles.of(blocks.of(right, 0, block), 1, t)));
        }
      }
    }
  });
  at::Tensor out = at::empty({heights, columns}, left.options());
  convert(groups == 1 ? sums[0] : sums.sum(0), out);
  return out;
}

}  // namespace mezzo
