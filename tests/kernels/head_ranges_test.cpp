// The kernels that work by head on random arguments in buffers, also scratch, of the exact size:
// compared with the definition if that is exact, and ranges of rows with all rows.

#include "kernels/head_case.h"
#include "kernels/pieces.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

struct WeightedGrad {
  WeightedGrad(const Kernels& kernels, Draw& draw, DType dtype)
      : h(draw, dtype, draw.one_of(kernels.hub_entries)),
        own(draw, dtype, false, h.entries.num_rows, h.heads * h.features, {-2, -1, 0, 1, 2}),
        other(draw, dtype, false, h.entries.num_others, h.heads * h.features, {-2, -1, 0, 1, 2}),
        weight(draw, dtype, some_accum(draw, dtype), h.entries.num_edges(), h.heads,
               {-2, -1, 1, 2}),
        own_scale(draw, dtype, true, h.entries.num_rows, 1, kPowers),
        other_scale(draw, dtype, true, h.entries.num_others, 1, kPowers),
        by_own(draw.coin()),
        by_other(draw.coin()),
        sums(draw.coin()),
        grad_is_accum(some_accum(draw, dtype)) {}

  WeightedGradArgs args() const {
    return {.entries = h.entries.view(),
            .dtype = h.dtype,
            .heads = h.heads,
            .features = h.features,
            .own = own.bytes.data(),
            .other = other.bytes.data(),
            .weight = weight.numbers(),
            .own_scale = by_own ? own_scale.bytes.data() : nullptr,
            .other_scale = by_other ? other_scale.bytes.data() : nullptr,
            .weight_grad_is_accum = grad_is_accum};
  }
  double scale(std::int64_t row, std::int64_t from) const {
    return (by_own ? own_scale.at(row, 0) : 1) * (by_other ? other_scale.at(from, 0) : 1);
  }

  Heads h;
  Matrix own, other, weight, own_scale, other_scale;
  bool by_own, by_other, sums, grad_is_accum;
};

void check_weighted_grad(const Kernels& backend, Draw& draw, DType dtype) {
  const WeightedGrad w(backend, draw, dtype);
  const Heads& h = w.h;
  SCOPED_TRACE(h.text());
  const std::int64_t width = h.heads * h.features;
  std::vector<double> sum(static_cast<std::size_t>(h.entries.num_rows * width), 0);
  std::vector<double> products(static_cast<std::size_t>(h.entries.num_edges() * h.heads), 0);
  for_each_entry(h.entries, [&](std::int64_t row, std::int64_t entry) {
    const std::int64_t from = h.entries.id(Access::kFirst, row, entry);
    const std::int64_t edge = h.entries.id(Access::kSecond, row, entry);
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t head = i / h.features;
      const double scaled = w.scale(row, from) * w.other.at(from, i);
      sum[static_cast<std::size_t>(row * width + i)] += w.weight.at(edge, head) * scaled;
      products[static_cast<std::size_t>(entry * h.heads + head)] += w.own.at(row, i) * scaled;
    }
  });
  const std::size_t product_bytes =
      static_cast<std::size_t>(h.heads) * element_size(dtype, w.grad_is_accum);
  const auto call = [&](std::int64_t begin, std::int64_t end, std::byte* own_grad,
                        std::byte* weight_grad) {
    GuardedBytes scratch(h.scratch_bytes());
    WeightedGradArgs args = with_rows(w.args(), begin, end);
    args.own_grad = w.sums ? own_grad : nullptr;
    args.out_streams = streams(begin, end);
    args.weight_grad = weight_grad;
    args.scratch = scratch.data();
    backend.run(args);
  };
  const RunRows of_rows = [&](std::int64_t begin, std::int64_t end, Result& result) {
    GuardedBytes edges(products.size() / static_cast<std::size_t>(h.heads) * product_bytes);
    call(begin, end, result.bytes.data(), edges.data());
  };
  const RunRows of_edges = [&](std::int64_t begin, std::int64_t end, Result& result) {
    GuardedBytes rows(static_cast<std::size_t>(h.entries.num_rows) * h.row_bytes());
    call(begin, end, rows.data(), result.bytes.data());
  };
  if (w.sums) {
    expect_result(backend, draw, dtype, false, h.entries.num_rows, own_rows(h.entries), sum,
                  of_rows);
  }
  expect_result(backend, draw, dtype, w.grad_is_accum, h.entries.num_rows,
                rows_of_entries(h.entries), products, of_edges);
}

TEST(HeadRanges, of_the_gradients_of_weighted_sums_are_the_definition) {
  on_every_backend(25, [](const Kernels& backend, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() { check_weighted_grad(backend, draw, T::kind); });
  });
}

/// Scores, weights and rows of one call. With `equal`, all logits of a destination are equal, so
/// the softmax is 1 / degree.
struct Attention {
  Attention(const Kernels& kernels, Draw& draw, DType dtype, bool is_equal, bool with_dropout)
      : h(draw, dtype, draw.one_of(kernels.hub_entries)),
        equal(is_equal),
        z(draw, dtype, false, h.entries.num_others, h.heads * h.features, kWhole),
        src(draw, dtype, some_accum(draw, dtype), h.entries.num_others, h.heads, scores()),
        dst(draw, dtype, some_accum(draw, dtype), h.entries.num_rows, h.heads, kWhole),
        weight(draw, dtype, some_accum(draw, dtype), h.entries.num_edges(),
               draw.coin() ? h.heads : 1, {-2, -1, 1, 2}),
        weighted(draw.coin()) {
    if (with_dropout) dropout = {.seed = draw.seed(), .threshold = 20000};
  }

  std::vector<double> scores() const { return equal ? std::vector<double>{0.5} : kWhole; }
  AttentionScores view() const {
    return {.src = src.numbers(),
            .dst = dst.numbers(),
            .edge_weight = weighted ? weight.numbers() : HeadNumbers{},
            .negative_slope = 0.25,
            .dropout = dropout};
  }

  Heads h;
  bool equal;
  Matrix z, src, dst, weight;
  bool weighted;
  DropoutLevel dropout;
};

void attend(const Kernels& backend, const Attention& a, std::int64_t begin, std::int64_t end,
            AttentionOutputs& result) {
  GuardedBytes scratch(a.h.scratch_bytes());
  auto args = args_of<AttentionArgs>(a.h, begin, end);
  args.scores = a.view();
  args.z = a.z.bytes.data();
  args.out = result.out.data();
  args.out_streams = streams(begin, end);
  args.top = result.top.data();
  args.sum = result.sum.data();
  args.scratch = scratch.data();
  backend.run(args);
}

void check_attention(const Kernels& backend, Draw& draw, DType dtype) {
  const bool equal = draw.coin();
  const Attention a(backend, draw, dtype, equal, /*with_dropout=*/!equal && draw.coin());
  const Heads& h = a.h;
  SCOPED_TRACE(h.text());
  AttentionOutputs whole(h), parts(h);
  attend(backend, a, 0, h.entries.num_rows, whole);
  in_two_ranges(backend, draw, h.entries.num_rows, [&](std::int64_t begin, std::int64_t end) {
    attend(backend, a, begin, end, parts);
  });
  expect_same(parts, whole);
  if (!equal) return;
  const definition::Edges edges = h.entries.edges();
  const auto rows = a.z.array({h.heads, h.features}),
             weights = a.weight.array({a.weight.length, 1});
  const definition::Message weighted{.edges = edges,
                                     .op = a.weighted ? BinaryOp::kMul : BinaryOp::kCopyLhs,
                                     .lhs = rows,
                                     .rhs = weights};
  const auto expected = definition::gspmm(weighted, ReduceOp::kMean).out.value.values;
  expect_numbers(numbers_in(dtype, false, whole.out), rounded(dtype, false, expected));
}

TEST(HeadRanges, of_the_attention_are_the_definition_if_it_is_exact) {
  on_every_backend(25, [](const Kernels& backend, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() { check_attention(backend, draw, T::kind); });
  });
}

/// Rows are sources, first ids are destinations.
struct AttentionBackward {
  AttentionBackward(Draw& draw, DType dtype)
      : h(draw, dtype),
        num_dst(h.entries.num_others),
        z(draw, dtype, false, h.entries.num_rows, h.heads * h.features, kWhole),
        out(draw, dtype, false, num_dst, h.heads * h.features, kWhole),
        grad(draw, dtype, false, num_dst, h.heads * h.features, kWhole),
        src(draw, dtype, some_accum(draw, dtype), h.entries.num_rows, h.heads, kWhole),
        dst(draw, dtype, some_accum(draw, dtype), num_dst, h.heads, kWhole),
        top(draw, dtype, true, num_dst, h.heads, {6}),
        sum(draw, dtype, true, num_dst, h.heads, {1, 2, 4}),
        weight(draw, dtype, false, h.entries.num_edges(), draw.coin() ? h.heads : 1,
               {-2, -1, 1, 2}),
        weighted(draw.coin()),
        state(static_cast<std::size_t>(num_dst * kStateNumbers * h.heads) *
              element_size(dtype, true)) {
    if (draw.coin()) dropout = {.seed = draw.seed(), .threshold = 20000};
  }

  void gather_state(const Kernels& backend, std::int64_t begin, std::int64_t end) {
    backend.run(AttentionStateArgs{.row_begin = begin,
                                   .row_end = end,
                                   .dtype = h.dtype,
                                   .heads = h.heads,
                                   .features = h.features,
                                   .score_dst = dst.numbers(),
                                   .top = top.bytes.data(),
                                   .sum = sum.bytes.data(),
                                   .out = out.bytes.data(),
                                   .grad = grad.bytes.data(),
                                   .state = state.data()});
  }
  std::vector<double> expected_state() const {
    std::vector<double> expected;
    for (std::int64_t v = 0; v < num_dst; ++v) {
      for (std::int64_t i = 0; i < h.heads; ++i) expected.push_back(dst.at(v, i));
      for (std::int64_t i = 0; i < h.heads; ++i) expected.push_back(top.at(v, i));
      for (std::int64_t i = 0; i < h.heads; ++i) expected.push_back(1 / sum.at(v, i));
      for (std::int64_t i = 0; i < h.heads; ++i) {
        double mean = 0;
        for (std::int64_t f = i * h.features; f < (i + 1) * h.features; ++f) {
          mean += out.at(v, f) * grad.at(v, f);
        }
        expected.push_back(mean);
      }
    }
    return expected;
  }
  void run(const Kernels& backend, std::int64_t begin, std::int64_t end,
           AttentionGradients& result) const {
    GuardedBytes scratch(h.scratch_bytes());
    auto args = args_of<AttentionGradArgs>(h, begin, end);
    args.head_begin = 0;
    args.head_end = h.heads;
    args.scores = {.src = src.numbers(),
                   .dst = {},
                   .edge_weight = weighted ? weight.numbers() : HeadNumbers{},
                   .negative_slope = 0.25,
                   .dropout = dropout};
    args.z = z.bytes.data();
    args.grad = grad.bytes.data();
    args.state = state.data();
    args.z_grad = result.z.data();
    args.out_streams = streams(begin, end);
    args.score_grad = result.score.data();
    args.sum_grad = result.sum.data();
    args.weight_grad = weighted ? result.weight.data() : nullptr;
    args.scratch = scratch.data();
    backend.run(args);
  }

  Heads h;
  std::int64_t num_dst;
  Matrix z, out, grad, src, dst, top, sum, weight;
  bool weighted;
  DropoutLevel dropout;
  GuardedBytes state;
};

void check_attention_grad(const Kernels& backend, Draw& draw, DType dtype) {
  AttentionBackward a(draw, dtype);
  SCOPED_TRACE(a.h.text());
  in_two_ranges(backend, draw, a.num_dst,
                [&](std::int64_t begin, std::int64_t end) { a.gather_state(backend, begin, end); });
  expect_numbers(numbers_in(dtype, true, a.state), a.expected_state());

  AttentionGradients whole(a.h, a.weight.length), parts(a.h, a.weight.length);
  const std::int64_t rows = a.h.entries.num_rows;
  a.run(backend, 0, rows, whole);
  in_two_ranges(backend, draw, rows,
                [&](std::int64_t begin, std::int64_t end) { a.run(backend, begin, end, parts); });
  expect_same(parts, whole, /*weighted=*/true);
}

TEST(HeadRanges, of_the_attentions_gradient_agree_with_the_whole) {
  on_every_backend(25, [](const Kernels& backend, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() { check_attention_grad(backend, draw, T::kind); });
  });
}

}  // namespace
}  // namespace mezzo::test
