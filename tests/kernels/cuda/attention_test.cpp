// CUDA attention and its gradients with any scores, weights and dropout: compared with a float64
// reference, and bitwise equal for every order of blocks and threads.
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>

#include "kernels/head_case.h"
#include "kernels/pieces.h"
#include "tests/definitions/dropout.h"
#include "tests/definitions/gat_attention.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;
using mezzo::detail::visit;

constexpr double kSlope = 0.25;
const std::vector<double> kScores = {-3, -1.5, -0.125, 0, 0.5, 1.25, 2, 4};

std::size_t place(std::int64_t row, std::int64_t length, std::int64_t at) {
  return static_cast<std::size_t>(row * length + at);
}

/// Allows `terms` roundings of the total in the accumulator, and one of the result.
void expect_near(const std::vector<double>& got, const definition::Sums& expected, double terms,
                 DType dtype, bool is_accum, const char* what) {
  const double accumulator =
      dtype == DType::kFloat64 ? Float64::epsilon : static_cast<double>(Float32::epsilon);
  double storage = accumulator, smallest = std::numeric_limits<float>::min();
  if (!is_accum) visit(DTypes{}, dtype, [&]<class T>() { storage = T::epsilon; });
  if (!is_accum && dtype == DType::kFloat16) smallest = 0x1p-24;  // spacing of subnormals
  const std::vector<double>&value = expected.value.values, &size = expected.size.values;
  ASSERT_EQ(got.size(), value.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double bound = storage * std::fabs(value[i]) + terms * accumulator * size[i] + smallest;
    ASSERT_LE(std::fabs(got[i] - value[i]), bound)
        << what << ", element " << i << ": got " << got[i] << ", expected " << value[i];
  }
}

/// Inputs of one graph, by destination. For the gradient the same rows are sources, and `others`
/// are the destinations.
struct Numbers {
  Numbers(Draw& draw, DType dtype, bool rows_are_sources, std::int64_t most)
      : h(draw, dtype, most),
        num_src(rows_are_sources ? h.entries.num_rows : h.entries.num_others),
        num_dst(rows_are_sources ? h.entries.num_others : h.entries.num_rows),
        z(draw, dtype, false, num_src, h.heads * h.features, kWhole),
        grad(draw, dtype, false, num_dst, h.heads * h.features, kWhole),
        src(draw, dtype, some_accum(draw, dtype), num_src, h.heads, kScores),
        dst(draw, dtype, some_accum(draw, dtype), num_dst, h.heads, kScores),
        weight(draw, dtype, some_accum(draw, dtype), h.entries.num_edges(),
               draw.coin() ? h.heads : 1, {-2, -1, 1, 2}),
        weighted(draw.coin()) {
    if (draw.coin()) dropout = {.seed = draw.seed(), .threshold = 20000};
    if (draw.coin()) seed_offset = static_cast<std::int64_t>(draw.seed());
  }

  AttentionScores scores() const {
    DropoutLevel level = dropout;
    if (seed_offset) level.seed_offset = &*seed_offset;
    return {.src = src.numbers(),
            .dst = dst.numbers(),
            .edge_weight = weighted ? weight.numbers() : HeadNumbers{},
            .negative_slope = kSlope,
            .dropout = level};
  }
  /// Edges run from the kernel's first ids to its rows, or back; their results are by entry.
  definition::Edges edges(bool rows_are_sources) const {
    definition::Edges all = h.entries.edges();
    if (rows_are_sources) {
      std::swap(all.src, all.dst);
      std::swap(all.num_src, all.num_dst);
    }
    std::iota(all.id.begin(), all.id.end(), 0);
    return all;
  }
  /// edges: of edges().
  definition::Attention attention(const definition::Edges& edges) const {
    definition::Attention all{.edges = edges,
                              .z = z.array({h.heads, h.features}),
                              .src = src.array({h.heads}),
                              .dst = dst.array({h.heads}),
                              .slope = kSlope};
    const auto& ids = h.entries.second;
    all.dropout = definition::filled({edges.count(), h.heads}, 1);
    if (weighted) all.weight = definition::filled({edges.count(), weight.length}, 1);
    const DropoutLevel level = scores().dropout;
    for (std::int64_t e = 0; e < edges.count(); ++e) {
      const std::int64_t edge = ids[static_cast<std::size_t>(e)];
      for (std::int64_t i = 0; i < h.heads; ++i) {
        all.dropout[e * h.heads + i] = definition::dropout_factor(level, edge * h.heads + i);
      }
      for (std::int64_t i = 0; weighted && i < weight.length; ++i) {
        all.weight[e * weight.length + i] = weight.at(edge, i);
      }
    }
    return all;
  }
  /// Roundings per term: the sum over a row, the logit in its exponential, and a few more.
  double terms() const {
    const auto edges = static_cast<double>(h.entries.num_edges());
    return edges + static_cast<double>(h.features) + 32;
  }

  Heads h;
  std::int64_t num_src, num_dst;
  Matrix z, grad, src, dst, weight;
  bool weighted;
  DropoutLevel dropout;
  std::optional<std::int64_t> seed_offset;
};

AttentionOutputs attended(const Kernels& kernels, const Numbers& n) {
  AttentionOutputs result(n.h);
  auto args = args_of<AttentionArgs>(n.h, 0, n.num_dst);
  args.scores = n.scores();
  args.z = n.z.bytes.data();
  args.out = result.out.data();
  args.top = result.top.data();
  args.sum = result.sum.data();
  kernels.run(args);
  return result;
}

void check_forward(Draw& draw, DType dtype) {
  const std::vector<Kernels> orders = kernels_under_test();
  const Numbers n(draw, dtype, false, draw.one_of(orders[0].hub_entries));
  SCOPED_TRACE(n.h.text());
  const AttentionOutputs got = attended(orders[0], n);
  for (std::size_t i = 1; i < orders.size(); ++i) {
    SCOPED_TRACE("in another order of the threads");
    expect_same(got, attended(orders[i], n));
  }
  const definition::Edges edges = n.edges(false);
  const definition::AttentionResult expected = definition::gat_attention(n.attention(edges));
  const std::vector<double>&top = expected.largest.values, &sum = expected.sum.value.values;
  expect_near(numbers_in(dtype, false, got.out), expected.out, 2 * n.terms(), dtype, false, "out");
  const auto got_top = numbers_in(dtype, true, got.top), got_sum = numbers_in(dtype, true, got.sum);
  for (std::size_t i = 0; i < top.size(); ++i) {
    if (sum[i] == 0) continue;  // an empty row has no maximum
    ASSERT_EQ(got_top[i], top[i]) << "the largest logit " << i;
    ASSERT_LE(std::fabs(got_sum[i] - sum[i]), n.terms() * Float32::epsilon * sum[i]);
  }
}

TEST(CudaAttention, is_the_definition_in_any_order_of_threads) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    for_each(DTypes{}, [&]<class T>() { check_forward(draw, T::kind); });
  }
}

/// Runs the heads [begin, end), with their sums in `sum`.
void take_heads(const Kernels& kernels, const Numbers& n, const GuardedBytes& state,
                std::int64_t begin, std::int64_t end, AttentionGradients& result,
                GuardedBytes& sum) {
  auto args = args_of<AttentionGradArgs>(n.h, 0, n.num_src);
  args.head_begin = begin;
  args.head_end = end;
  args.scores = n.scores();
  args.z = n.z.bytes.data();
  args.grad = n.grad.bytes.data();
  args.state = state.data();
  args.z_grad = result.z.data();
  args.score_grad = result.score.data();
  args.sum_grad = sum.data();
  args.weight_grad = n.weighted ? result.weight.data() : nullptr;
  kernels.run(args);
}

AttentionGradients gradients(const Kernels& kernels, const Numbers& n, const GuardedBytes& state) {
  AttentionGradients result(n.h, n.weight.length);
  take_heads(kernels, n, state, 0, n.h.heads, result, result.sum);
  return result;
}

/// [num_dst, kStateNumbers, heads]: arbitrary numbers without large exponentials.
std::vector<double> random_state(Draw& draw, const Numbers& n) {
  std::vector<double> state;
  for (std::int64_t v = 0; v < n.num_dst; ++v) {
    for (std::int64_t i = 0; i < n.h.heads; ++i) state.push_back(n.dst.at(v, i));
    for (const auto& from : {std::vector<double>{8}, {0.25, 0.5, 1}, {-2, 0, 1, 3}}) {
      for (std::int64_t i = 0; i < n.h.heads; ++i) state.push_back(draw.one_of(from));
    }
  }
  return state;
}

void check_backward(Draw& draw, DType dtype) {
  const std::vector<Kernels> orders = kernels_under_test();
  const Numbers n(draw, dtype, true, draw.one_of(orders[0].hub_entries));
  SCOPED_TRACE(n.h.text());
  const std::vector<double> state = random_state(draw, n);
  const GuardedBytes stored_state = stored(dtype, true, state);
  const AttentionGradients got = gradients(orders[0], n, stored_state);
  for (std::size_t i = 1; i < orders.size(); ++i) {
    SCOPED_TRACE("in another order of the threads");
    expect_same(got, gradients(orders[i], n, stored_state), n.weighted);
  }
  const definition::Edges edges = n.edges(true);
  definition::AttentionState read;
  for (definition::Array* one : {&read.largest, &read.sum, &read.mean, &read.mean_size}) {
    *one = definition::filled({n.num_dst, n.h.heads}, 0);
  }
  for (std::int64_t i = 0; i < n.num_dst * n.h.heads; ++i) {
    const std::int64_t v = i / n.h.heads;
    const auto of_state = [&](std::int64_t which) {
      return state[place(v * kStateNumbers + which, n.h.heads, i % n.h.heads)];
    };
    read.largest[i] = of_state(1);
    read.sum[i] = 1 / of_state(2);
    read.mean[i] = of_state(3);
    read.mean_size[i] = std::fabs(of_state(3));
  }
  const auto expected = definition::gat_attention_gradients(
      n.attention(edges), read, n.grad.array({n.h.heads, n.h.features}));
  expect_near(numbers_in(dtype, false, got.z), expected.z, n.terms(), dtype, false, "z_grad");
  expect_near(numbers_in(dtype, true, got.score), expected.src, n.terms(), dtype, true,
              "score_grad");
  expect_near(numbers_in(dtype, true, got.sum), expected.sum, n.terms(), dtype, true, "sum_grad");
  if (!n.weighted) return;
  expect_near(numbers_in(dtype, true, got.weight), expected.weight,
              n.terms() + static_cast<double>(n.h.heads), dtype, true, "weight_grad");
}

void check_two_passes(Draw& draw, DType dtype) {
  const Kernels kernels = kernels_under_test()[0];
  const Numbers n(draw, dtype, true, draw.one_of(kernels.hub_entries));
  const std::int64_t heads = n.h.heads, cut = draw.below(heads + 1);
  SCOPED_TRACE(fmt::format("{}, cut at head {}", n.h.text(), cut));
  const GuardedBytes state = stored(dtype, true, random_state(draw, n));
  const AttentionGradients whole = gradients(kernels, n, state);
  AttentionGradients parts(n.h, n.weight.length);
  GuardedBytes low = AttentionGradients::by_entry(n.h, cut);
  GuardedBytes high = AttentionGradients::by_entry(n.h, heads - cut);
  take_heads(kernels, n, state, 0, cut, parts, low);
  take_heads(kernels, n, state, cut, heads, parts, high);
  const std::size_t size = element_size(dtype, true);
  for (std::int64_t entry = 0; entry < n.h.entries.num_edges(); ++entry) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::size_t at =
          head < cut ? place(entry, cut, head) : place(entry, heads - cut, head - cut);
      std::memcpy(parts.sum.data() + place(entry, heads, head) * size,
                  (head < cut ? low : high).data() + at * size, size);
    }
  }
  expect_same(parts, whole, n.weighted);
}

TEST(CudaAttention, has_the_same_gradients_where_heads_are_taken_in_two_passes) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    for_each(DTypes{}, [&]<class T>() { check_two_passes(draw, T::kind); });
  }
}

TEST(CudaAttention, has_the_gradients_of_the_definition_in_any_order_of_threads) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    for_each(DTypes{}, [&]<class T>() { check_backward(draw, T::kind); });
  }
}

}  // namespace
}  // namespace mezzo::test
