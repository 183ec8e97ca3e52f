// GATv2 scores and their gradients on random arguments in buffers of the exact size: compared with
// the definition in float64, and ranges of rows with all rows.

#include "kernels/head_case.h"
#include "kernels/pieces.h"
#include "tests/definitions/gatv2_scores.h"

namespace mezzo::test {
namespace {

struct Pairs {
  Pairs(const Kernels& kernels, Draw& draw, DType dtype)
      : h(draw, dtype, draw.one_of(kernels.hub_entries)),
        own(draw, dtype, false, h.entries.num_rows, h.heads * h.features, kWhole),
        other(draw, dtype, false, h.entries.num_others, h.heads * h.features, kWhole),
        attn(draw, dtype, true, 1, h.heads * h.features, {-2, -1, 1, 2}),
        grad(draw, dtype, true, h.entries.num_edges(), h.heads, kWhole) {}

  GATv2Pairs view() const {
    return {.heads = h.heads,
            .features = h.features,
            .own = own.bytes.data(),
            .other = other.bytes.data(),
            .attn = attn.bytes.data(),
            .negative_slope = 0.25};
  }
  definition::Result defined() const {
    const definition::Sizes row = {h.heads, h.features};
    return definition::gatv2_scores(h.entries.edges(), other.array(row), own.array(row),
                                    attn.array(row), 0.25, grad.array({h.heads}));
  }

  Heads h;
  Matrix own, other, attn, grad;
};

void check_scores(const Kernels& backend, Draw& draw, DType dtype) {
  const Pairs p(backend, draw, dtype);
  SCOPED_TRACE(p.h.text());
  const RunRows run = [&](std::int64_t begin, std::int64_t end, Result& result) {
    backend.run(GATv2ScoresArgs{.entries = p.h.entries.view(),
                                .row_begin = begin,
                                .row_end = end,
                                .dtype = dtype,
                                .pairs = p.view(),
                                .scores = result.bytes.data()});
  };
  expect_result(backend, draw, dtype, true, p.h.entries.num_rows, rows_of_edges(p.h.entries),
                p.defined().out.value.values, run);
}

TEST(GATv2Ranges, of_scores_are_the_definition) {
  on_every_backend(25, [](const Kernels& backend, Draw& draw) {
    mezzo::detail::for_each(DTypes{}, [&]<class T>() { check_scores(backend, draw, T::kind); });
  });
}

void check_scores_grad(const Kernels& backend, Draw& draw, DType dtype) {
  const Pairs p(backend, draw, dtype);
  SCOPED_TRACE(p.h.text());
  const definition::Result expected = p.defined();
  // Each range adds its sum to attn_grad; every sum is exact, in any order.
  GuardedBytes attn_grad(p.attn.bytes.size());
  std::memset(attn_grad.data(), 0, attn_grad.size());
  bool with_attn = true;
  const RunRows run = [&](std::int64_t begin, std::int64_t end, Result& result) {
    backend.run(GATv2ScoresGradArgs{.entries = p.h.entries.view(),
                                    .row_begin = begin,
                                    .row_end = end,
                                    .dtype = dtype,
                                    .pairs = p.view(),
                                    .grad = p.grad.bytes.data(),
                                    .own_grad = result.bytes.data(),
                                    .attn_grad = with_attn ? attn_grad.data() : nullptr});
  };
  Result whole = make_result(own_rows(p.h.entries), p.h.row_bytes());
  const std::int64_t cut = !backend.take_ranges ? 0 : draw.below(p.h.entries.num_rows + 1);
  run(cut, p.h.entries.num_rows, whole);
  run(0, cut, whole);
  expect_numbers(numbers_in(dtype, true, attn_grad), expected.gradients[2].value.values);
  expect_numbers(numbers_in(dtype, false, whole.bytes),
                 rounded(dtype, false, expected.gradients[1].value.values));
  with_attn = false;
  expect_ranges_agree(backend, draw, p.h.entries.num_rows, whole, run);
}

TEST(GATv2Ranges, of_the_scores_gradients_are_the_definition) {
  on_every_backend(25, [](const Kernels& backend, Draw& draw) {
    mezzo::detail::for_each(DTypes{},
                            [&]<class T>() { check_scores_grad(backend, draw, T::kind); });
  });
}

}  // namespace
}  // namespace mezzo::test
