// Infinities and NaN in the CUDA kernels: their effect does not depend on the order of a sum, so
// the results equal those of the CPU's scalar kernels.
#include <cstddef>
#include <limits>

#include "kernels/head_case.h"
#include "kernels/pieces.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
const std::vector<double> kSpecial = {-2, -1, 0, 1, 2, 3, kInfinity, -kInfinity, kNan};

const CpuBackend& scalar() {
  return *cpu_backends()[0].backend;
}

/// Reads the ids that a kernel stored.
std::vector<std::int32_t> ids_in(const GuardedBytes& bytes) {
  std::vector<std::int32_t> ids(bytes.size() / sizeof(std::int32_t));
  if (!ids.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  return ids;
}

/// Mostly finite numbers for lhs, so that some results are not NaN.
std::vector<double> mostly_plain() {
  std::vector<double> numbers(60, 1);
  numbers.insert(numbers.end(), kSpecial.begin(), kSpecial.end());
  return numbers;
}

struct ReducedBytes {
  explicit ReducedBytes(const RandomMessage& m)
      : size(static_cast<std::size_t>(m.entries.num_rows * m.shape.out_length())),
        out(size * element_size(m.dtype, false)),
        arg(size * sizeof(std::int32_t)),
        product(size * element_size(m.dtype, true)) {}
  std::size_t size;
  GuardedBytes out, arg, product;
};

void reduce_into(const CpuBackend& kernels, const RandomMessage& m, ReduceOp reduce,
                 ReducedBytes& result) {
  const bool has_arg = reduce != ReduceOp::kSum && reduce != ReduceOp::kMean;
  kernels.run(SpmmArgs{.entries = m.entries.view(),
                       .row_begin = 0,
                       .row_end = m.entries.num_rows,
                       .lhs = m.lhs.view(),
                       .rhs = m.rhs.view(),
                       .layout = m.shape.layout(),
                       .op = m.op,
                       .reduce = reduce,
                       .dtype = m.dtype,
                       .out = result.out.data(),
                       .out_length = m.shape.out_length(),
                       .arg = has_arg ? result.arg.data() : nullptr,
                       .product = reduce == ReduceOp::kProd ? result.product.data() : nullptr});
}

TEST(CudaSpecialNumbers, pass_through_every_reduction) {
  on_every_backend(10, [](const Kernels& kernels, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() {
      for_each(BinaryOps{}, [&]<class Op>() {
        for_each(ReduceOps{}, [&]<class Reduce>() {
          // A product of many numbers overflows or underflows, depending on the order.
          const bool prod = Reduce::kind == ReduceOp::kProd;
          const std::int64_t most = prod ? 5 : draw.one_of(kernels.hub_entries);
          const RandomMessage m(draw, Op::kind, T::kind, most, mostly_plain());
          SCOPED_TRACE(m.text() + " " + std::string(Reduce::name));
          ReducedBytes got(m), expected(m);
          reduce_into(kernels, m, Reduce::kind, got);
          reduce_into(scalar(), m, Reduce::kind, expected);
          expect_numbers(numbers_in(T::kind, false, got.out),
                         numbers_in(T::kind, false, expected.out));
          if (Reduce::selects || prod) {
            EXPECT_EQ(ids_in(got.arg), ids_in(expected.arg));
          }
          if (prod) {
            expect_numbers(numbers_in(T::kind, true, got.product),
                           numbers_in(T::kind, true, expected.product));
          }
        });
      });
    });
  });
}

GuardedBytes softmax_of(const CpuBackend& kernels, const RandomEntries& entries, DType dtype,
                        std::int64_t length, const GuardedBytes& logits) {
  GuardedBytes out(logits.size());
  kernels.run(SoftmaxArgs{.entries = entries.view(),
                          .row_begin = 0,
                          .row_end = entries.num_rows,
                          .dtype = dtype,
                          .length = length,
                          .logits = logits.data(),
                          .out_ids = entries.view().second,
                          .out = out.data()});
  return out;
}

TEST(CudaSpecialNumbers, pass_through_the_softmax) {
  on_every_backend(40, [](const Kernels& kernels, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() {
      const RandomEntries entries(draw, draw.one_of(kernels.hub_entries));
      const std::int64_t length = 1 + draw.below(20);
      // Equal or infinitely far apart: every exponential is 0, 1 or NaN.
      std::vector<double> from(30, 2);
      from.insert(from.end(), {-kInfinity, -kInfinity, kInfinity, kNan});
      if (draw.coin()) from = {-kInfinity};
      const GuardedBytes logits =
          stored(T::kind, false, draw.numbers(entries.num_edges() * length, from));
      expect_numbers(
          numbers_in(T::kind, false, softmax_of(kernels, entries, T::kind, length, logits)),
          numbers_in(T::kind, false, softmax_of(scalar(), entries, T::kind, length, logits)));
    });
  });
}

/// Attention over equal scores, or over NaN and infinite scores.
GuardedBytes attention_of(const CpuBackend& kernels, const Heads& h, const Matrix& z,
                          const Matrix& src, const Matrix& dst) {
  GuardedBytes out(static_cast<std::size_t>(h.entries.num_rows) * h.row_bytes());
  GuardedBytes top(static_cast<std::size_t>(h.entries.num_rows * h.heads) *
                   element_size(h.dtype, true));
  GuardedBytes sum(top.size()), scratch(h.scratch_bytes());
  AttentionScores scores;
  scores.src = src.numbers();
  scores.dst = dst.numbers();
  kernels.run(AttentionArgs{.entries = h.entries.view(),
                            .row_begin = 0,
                            .row_end = h.entries.num_rows,
                            .dtype = h.dtype,
                            .heads = h.heads,
                            .features = h.features,
                            .scores = scores,
                            .z = z.bytes.data(),
                            .out = out.data(),
                            .top = top.data(),
                            .sum = sum.data(),
                            .scratch = scratch.data()});
  return out;
}

TEST(CudaSpecialNumbers, pass_through_the_attention) {
  on_every_backend(40, [](const Kernels& kernels, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() {
      const Heads h(draw, T::kind);
      SCOPED_TRACE(h.text());
      const std::int64_t width = h.heads * h.features;
      const bool special_scores = draw.coin();
      const Matrix z(draw, T::kind, false, h.entries.num_others, width,
                     special_scores ? std::vector<double>{0} : mostly_plain());
      const Matrix src(draw, T::kind, true, h.entries.num_others, h.heads,
                       special_scores ? mostly_plain() : std::vector<double>{1});
      const Matrix dst(draw, T::kind, true, h.entries.num_rows, h.heads, {1});
      expect_numbers(numbers_in(T::kind, false, attention_of(kernels, h, z, src, dst)),
                     numbers_in(T::kind, false, attention_of(scalar(), h, z, src, dst)));
    });
  });
}

}  // namespace
}  // namespace mezzo::test
