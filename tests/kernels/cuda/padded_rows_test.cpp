// Rows that edges gather, padded to whole packs: the CUDA kernels give the same bits as without
// padding, and store none of it. All sums are exact, so their order does not matter.
#include <array>
#include <cstddef>
#include <limits>

#include "kernels/head_case.h"
#include "kernels/pieces.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

/// Widths of Reddit's features and classes, and of the classes of ogbn-products.
constexpr std::array<std::int64_t, 3> kWidths = {602, 41, 47};
const std::vector<double> kSmall = {-2, -1, 0, 1, 2};

/// Calls check(kernels, draw, dtype, width) for every dtype and width, in several rounds.
template <class Check>
void for_each_width(Check check) {
  on_every_backend(3, [&](const Kernels& kernels, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() {
      for (const std::int64_t width : kWidths) {
        SCOPED_TRACE(fmt::format("{} width {}", T::name, width));
        check(kernels, draw, T::kind, width);
      }
    });
  });
}

/// Entries of a long row; some are so long that several blocks share them.
std::int64_t some_entries(Draw& draw) {
  return draw.one_of<std::int64_t>({12, 40, 1100});
}

std::int64_t padding_of(DType dtype, std::int64_t width) {
  const auto pack = static_cast<std::int64_t>(16 / element_size(dtype, false));
  return (pack - width % pack) % pack;
}

/// `values`, with `fill` after every `width` of them.
GuardedBytes padded(DType dtype, std::int64_t width, const std::vector<double>& values,
                    double fill) {
  std::vector<double> wide;
  for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(width)) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i);
    wide.insert(wide.end(), begin, begin + width);
    wide.insert(wide.end(), static_cast<std::size_t>(padding_of(dtype, width)), fill);
  }
  return stored(dtype, false, wide);
}

struct Reduced {
  GuardedBytes out, arg;
};

/// x: the rows of the others, `length` elements each. weight: one number an edge, or null.
Reduced reduced(const Kernels& kernels, const RandomEntries& entries, DType dtype, ReduceOp reduce,
                std::int64_t width, const GuardedBytes& x, std::int64_t length,
                const GuardedBytes* weight) {
  const auto size = static_cast<std::size_t>(entries.num_rows * width);
  Reduced result{GuardedBytes(size * element_size(dtype, false)),
                 GuardedBytes(size * sizeof(std::int32_t))};
  SpmmArgs args;
  args.entries = entries.view();
  args.row_end = entries.num_rows;
  args.lhs = {.data = x.data(), .access = Access::kFirst, .length = length};
  args.layout.inner = width;
  args.reduce = reduce;
  args.dtype = dtype;
  args.out = result.out.data();
  args.out_length = width;
  if (weight != nullptr) {
    args.rhs = {.data = weight->data(), .access = Access::kSecond, .length = 1};
    args.layout.rhs_step = 0;
    args.op = BinaryOp::kMul;
  }
  if (traits_of(reduce).selects) args.arg = result.arg.data();
  kernels.run(args);
  return result;
}

TEST(CudaPaddedRows, have_the_same_sums_and_maxima) {
  for_each_width([](const Kernels& kernels, Draw& draw, DType dtype, std::int64_t width) {
    const RandomEntries entries(draw, some_entries(draw));
    const std::vector<double> values = draw.numbers(entries.num_others * width, kWhole);
    const GuardedBytes plain = stored(dtype, false, values);
    const GuardedBytes wide =
        padded(dtype, width, values, std::numeric_limits<double>::quiet_NaN());
    const GuardedBytes weight =
        stored(dtype, false, draw.numbers(entries.num_edges(), {-2, -1, 1, 2}));
    const auto check = [&](ReduceOp reduce, const GuardedBytes* factors) {
      SCOPED_TRACE(name_of(ReduceOps{}, reduce));
      const Reduced expected =
          reduced(kernels, entries, dtype, reduce, width, plain, width, factors);
      const Reduced got = reduced(kernels, entries, dtype, reduce, width, wide,
                                  width + padding_of(dtype, width), factors);
      expect_same_bytes(got.out, expected.out, "out");
      expect_same_bytes(got.arg, expected.arg, "arg");
    };
    check(ReduceOp::kSum, nullptr);
    check(ReduceOp::kMean, &weight);
    check(ReduceOp::kMax, nullptr);
  });
}

/// One or two heads of `width` features.
Heads some_heads(Draw& draw, DType dtype, std::int64_t width) {
  Heads h(draw, dtype, some_entries(draw));
  h.heads = 1 + draw.below(2);
  h.features = width;
  return h;
}

TEST(CudaPaddedRows, have_the_same_gradients_of_weighted_sums) {
  for_each_width([](const Kernels& kernels, Draw& draw, DType dtype, std::int64_t width) {
    const Heads h = some_heads(draw, dtype, width);
    const Matrix own(draw, dtype, false, h.entries.num_rows, h.heads * width, kSmall);
    const Matrix other(draw, dtype, false, h.entries.num_others, h.heads * width, kSmall);
    const Matrix weight(draw, dtype, false, h.entries.num_edges(), h.heads, {-2, -1, 1, 2});
    const GuardedBytes wide = padded(dtype, width, other.values, 0);
    const bool sums = draw.coin();
    const auto run = [&](const GuardedBytes& rows, std::int64_t padding) {
      std::pair<GuardedBytes, GuardedBytes> result(
          static_cast<std::size_t>(h.entries.num_rows) * h.row_bytes(),
          static_cast<std::size_t>(h.entries.num_edges() * h.heads) * element_size(dtype, false));
      auto args = args_of<WeightedGradArgs>(h, 0, h.entries.num_rows);
      args.own = own.bytes.data();
      args.other = rows.data();
      args.other_padding = padding;
      args.weight = weight.numbers();
      args.own_grad = sums ? result.first.data() : nullptr;
      args.weight_grad = result.second.data();
      kernels.run(args);
      return result;
    };
    const auto expected = run(other.bytes, 0), got = run(wide, padding_of(dtype, width));
    expect_same_bytes(got.first, expected.first, "own_grad");
    expect_same_bytes(got.second, expected.second, "weight_grad");
  });
}

TEST(CudaPaddedRows, have_the_same_attention) {
  for_each_width([](const Kernels& kernels, Draw& draw, DType dtype, std::int64_t width) {
    const Heads h = some_heads(draw, dtype, width);
    const Matrix z(draw, dtype, false, h.entries.num_others, h.heads * width, kSmall);
    // Equal logits: each exponential is 1.
    const Matrix src(draw, dtype, true, h.entries.num_others, h.heads, {0.5});
    const Matrix dst(draw, dtype, true, h.entries.num_rows, h.heads, kWhole);
    const GuardedBytes wide = padded(dtype, width, z.values, 0);
    const auto run = [&](const GuardedBytes& rows, std::int64_t padding) {
      AttentionOutputs result(h);
      auto args = args_of<AttentionArgs>(h, 0, h.entries.num_rows);
      args.scores.src = src.numbers();
      args.scores.dst = dst.numbers();
      args.z = rows.data();
      args.z_padding = padding;
      args.out = result.out.data();
      args.top = result.top.data();
      args.sum = result.sum.data();
      kernels.run(args);
      return result;
    };
    expect_same(run(wide, padding_of(dtype, width)), run(z.bytes, 0));
  });
}

TEST(CudaPaddedRows, have_the_same_gradients_of_attention) {
  for_each_width([](const Kernels& kernels, Draw& draw, DType dtype, std::int64_t width) {
    const Heads h = some_heads(draw, dtype, width);
    const Matrix z(draw, dtype, false, h.entries.num_rows, h.heads * width, kSmall);
    const Matrix grad(draw, dtype, false, h.entries.num_others, h.heads * width, kSmall);
    const Matrix src(draw, dtype, true, h.entries.num_rows, h.heads, {0.5});
    const Matrix weight(draw, dtype, true, h.entries.num_edges(), draw.coin() ? h.heads : 1,
                        {-2, -1, 1, 2});
    // The logits are 1, as the maxima, so each exponential is 1.
    std::vector<double> state;
    for (std::int64_t v = 0; v < h.entries.num_others; ++v) {
      for (const auto& from : {std::vector<double>{0.5}, {1}, {0.25, 0.5, 1}, {-2, 0, 1, 3}}) {
        for (std::int64_t i = 0; i < h.heads; ++i) state.push_back(draw.one_of(from));
      }
    }
    const GuardedBytes stored_state = stored(dtype, true, state);
    const GuardedBytes wide = padded(dtype, width, grad.values, 0);
    const auto run = [&](const GuardedBytes& rows, std::int64_t padding) {
      AttentionGradients result(h, weight.length);
      auto args = args_of<AttentionGradArgs>(h, 0, h.entries.num_rows);
      args.head_end = h.heads;
      args.scores.src = src.numbers();
      args.scores.edge_weight = weight.numbers();
      args.z = z.bytes.data();
      args.grad = rows.data();
      args.grad_padding = padding;
      args.state = stored_state.data();
      args.z_grad = result.z.data();
      args.score_grad = result.score.data();
      args.sum_grad = result.sum.data();
      args.weight_grad = result.weight.data();
      kernels.run(args);
      return result;
    };
    expect_same(run(wide, padding_of(dtype, width)), run(grad.bytes, 0), /*weighted=*/true);
  });
}

}  // namespace
}  // namespace mezzo::test
