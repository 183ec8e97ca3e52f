// Every kernel of every backend on random arguments in buffers of the exact size: compared with the
// definition in float64, with ranges of rows on two threads, and with one range alone, which must
// write nothing but its own rows.
#include <algorithm>
#include <limits>

#include "kernels/pieces.h"
#include "tests/definitions/edge_softmax.h"

namespace mezzo::test {
namespace {

using mezzo::detail::for_each;

// g-SpMM.

struct Selected {
  std::vector<std::int64_t> arg;  // max, min: the selected edge or -1; prod: zeros, at most 2
  std::vector<double> product;    // prod: product of the nonzero messages
};

Selected selected_messages(const RandomMessage& m, ReduceOp reduce,
                           const definition::Reduced& reduced) {
  if (reduce != ReduceOp::kProd) return {reduced.winners, {}};
  const definition::Message message = m.message();
  const std::size_t size = reduced.winners.size();
  Selected all{std::vector<std::int64_t>(size, 0), std::vector<double>(size, 1)};
  for (std::int64_t e = 0; e < m.edges.count(); ++e) {
    for (std::int64_t f = 0; f < m.shape.out_length(); ++f) {
      const auto i =
          static_cast<std::size_t>(m.edges.row(Target::kDst, e) * m.shape.out_length() + f);
      const double value = message(e, f).value;
      if (value == 0) all.arg[i] = std::min<std::int64_t>(all.arg[i] + 1, 2);
      if (value != 0) all.product[i] *= value;
    }
  }
  return all;
}

SpmmArgs spmm_args(const RandomMessage& m, ReduceOp reduce) {
  SpmmArgs args;
  args.entries = m.entries.view();
  args.lhs = m.lhs.view();
  args.rhs = m.rhs.view();
  args.layout = m.shape.layout();
  args.op = m.op;
  args.reduce = reduce;
  args.dtype = m.dtype;
  args.out_length = m.shape.out_length();
  return args;
}

/// Messages such that every partial result is exact in float32, also products of many messages.
RandomMessage random_message(const Kernels& kernels, Draw& draw, BinaryOp op, DType dtype,
                             ReduceOp reduce) {
  const std::int64_t most = draw.one_of(kernels.hub_entries);
  if (reduce != ReduceOp::kProd) return {draw, op, dtype, most, kWhole};
  if (op == BinaryOp::kCopyLhs && most > 12) return {draw, op, dtype, most, {-1, 1, 1, 1, 0}};
  if (op != BinaryOp::kDot) return {draw, op, dtype, 6, {-2, -1, 0, 1, 2}};
  return {draw, op, dtype, 2, {-1, 0, 1}};
}

void check_spmm(const Kernels& backend, Draw& draw, BinaryOp op, ReduceOp reduce, DType dtype) {
  const RandomMessage m = random_message(backend, draw, op, dtype, reduce);
  SCOPED_TRACE(m.text() + " " + std::string(name_of(ReduceOps{}, reduce)));
  const SpmmArgs args = spmm_args(m, reduce);
  const definition::Reduced reduced = definition::gspmm(m.message(), reduce);
  expect_result(backend, draw, dtype, false, m.entries.num_rows, own_rows(m.entries),
                reduced.out.value.values,
                [&](std::int64_t begin, std::int64_t end, Result& result) {
                  SpmmArgs part = with_rows(args, begin, end);
                  part.out = result.bytes.data();
                  part.out_streams = streams(begin, end);
                  backend.run(part);
                });
  if (reduce == ReduceOp::kSum || reduce == ReduceOp::kMean) return;

  const Selected expected = selected_messages(m, reduce, reduced);
  const bool wide_ids = draw.coin();
  const auto width = static_cast<std::size_t>(args.out_length);
  const RunRows selected = [&](std::int64_t begin, std::int64_t end, Result& result) {
    GuardedBytes out(expected.arg.size() * element_size(dtype, /*is_accum=*/false));
    GuardedBytes product(expected.arg.size() * element_size(dtype, /*is_accum=*/true));
    SpmmArgs part = with_rows(args, begin, end);
    part.out = out.data();
    part.arg = result.bytes.data();
    part.arg_is_int64 = wide_ids;
    part.product = product.data();
    backend.run(part);
    if (begin > 0 || end < m.entries.num_rows || reduce != ReduceOp::kProd) return;
    expect_numbers(numbers_in(dtype, true, product), expected.product);
  };
  Result ids = make_result(own_rows(m.entries), width * (wide_ids ? 8 : 4));
  selected(0, m.entries.num_rows, ids);
  const StoredIds expected_ids(expected.arg, wide_ids);
  EXPECT_TRUE(ids.bytes.size() == 0 ||
              std::memcmp(ids.bytes.data(), expected_ids.bytes.data(), ids.bytes.size()) == 0)
      << "the selected edges, or the number of zeros";
  expect_ranges_agree(backend, draw, m.entries.num_rows, ids, selected);
}

TEST(KernelRanges, of_every_reduction_are_the_definition) {
  on_every_backend(8, [](const Kernels& backend, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() {
      for_each(BinaryOps{}, [&]<class Op>() {
        for_each(ReduceOps{}, [&]<class Reduce>() {
          check_spmm(backend, draw, Op::kind, Reduce::kind, T::kind);
        });
      });
    });
  });
}

/// Sums of rows, plain or with one weight per edge, with a scale per source and per row.
void check_scaled(const Kernels& backend, Draw& draw, DType dtype) {
  const BinaryOp op = draw.coin() ? BinaryOp::kCopyLhs : BinaryOp::kMul;
  const RandomEntries entries(draw, draw.one_of(backend.hub_entries));
  const std::int64_t groups = 1 + draw.below(3);
  const auto inner = draw.coin() ? 1 + draw.below(70) : draw.one_of<std::int64_t>({8, 16, 32, 64});
  const std::int64_t width = groups * inner;
  const RandomRows x(draw, entries, dtype, width, kWhole);
  if (x.is_accum) return;  // the rows of a scaled sum are stored in the kernel's dtype
  const RandomRows weight(draw, entries, dtype, groups, {-2, -1, 1, 2}, op == BinaryOp::kMul);
  std::vector<std::int64_t> x_table, weight_table;
  for (std::int64_t group = 0; group < groups; ++group) {
    x_table.push_back(group * inner);
    weight_table.push_back(group);
  }
  const auto from = draw.numbers(entries.rows_of(x.access), kPowers);
  const auto to = draw.numbers(entries.num_rows, kPowers);
  const GuardedBytes lhs_scale = stored(dtype, true, from), row_scale = stored(dtype, true, to);
  const bool by_source = draw.coin(), by_row = draw.coin();
  SpmmArgs args;
  args.entries = entries.view();
  args.lhs = x.view();
  args.rhs = weight.view();
  args.layout = {.num_groups = groups,
                 .inner = inner,
                 .lhs_offset = x_table.data(),
                 .rhs_offset = weight_table.data(),
                 .out_offset = x_table.data(),
                 .rhs_step = 0};
  args.op = op;
  args.dtype = dtype;
  args.lhs_scale = by_source ? lhs_scale.data() : nullptr;
  args.row_scale = by_row ? row_scale.data() : nullptr;
  args.out_length = width;
  const auto scale = [](bool is_present, const std::vector<double>& factors) {
    return is_present ? definition::Array{{static_cast<std::int64_t>(factors.size())}, factors}
                      : definition::Array{};
  };
  const definition::Edges edges = entries.edges();
  const auto rows = definition::scaled_rows(x.array({groups, inner}), scale(by_source, from));
  const auto factors = weight.array({groups, 1});
  const definition::Message message{.edges = edges,
                                    .op = op,
                                    .lhs = rows,
                                    .rhs = factors,
                                    .lhs_target = target_of(x.access),
                                    .rhs_target = target_of(weight.access)};
  const auto expected =
      definition::scaled_rows(definition::gspmm(message, ReduceOp::kSum).out, scale(by_row, to))
          .value.values;
  expect_result(backend, draw, dtype, false, entries.num_rows, own_rows(entries), expected,
                [&](std::int64_t begin, std::int64_t end, Result& result) {
                  SpmmArgs part = with_rows(args, begin, end);
                  part.out = result.bytes.data();
                  part.out_streams = streams(begin, end);
                  backend.run(part);
                });
}

TEST(KernelRanges, of_scaled_sums_are_the_definition) {
  on_every_backend(80, [](const Kernels& backend, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() { check_scaled(backend, draw, T::kind); });
  });
}

// g-SDDMM.

void check_sddmm(const Kernels& backend, Draw& draw, BinaryOp op, DType dtype) {
  const RandomMessage m(draw, op, dtype, draw.one_of(backend.hub_entries), kWhole);
  SCOPED_TRACE(m.text());
  SddmmArgs args;
  args.entries = m.entries.view();
  args.lhs = m.lhs.view();
  args.rhs = m.rhs.view();
  args.layout = m.shape.layout();
  args.op = op;
  args.dtype = dtype;
  args.out_ids = args.entries.second;
  args.out_is_accum = is_narrow(dtype) && draw.coin();
  args.out_length = m.shape.out_length();
  expect_result(backend, draw, dtype, args.out_is_accum, m.entries.num_rows,
                rows_of_edges(m.entries), definition::gsddmm(m.message()).value.values,
                [&](std::int64_t begin, std::int64_t end, Result& result) {
                  SddmmArgs part = with_rows(args, begin, end);
                  part.out = result.bytes.data();
                  backend.run(part);
                });
}

TEST(KernelRanges, of_edge_messages_are_the_definition) {
  on_every_backend(16, [](const Kernels& backend, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() {
      for_each(BinaryOps{}, [&]<class Op>() { check_sddmm(backend, draw, Op::kind, T::kind); });
    });
  });
}

/// Whether operands of 0 and powers of two give such messages, by which division is exact.
bool has_simple_messages(BinaryOp op) {
  return op == BinaryOp::kMul || op == BinaryOp::kDiv || op == BinaryOp::kCopyLhs ||
         op == BinaryOp::kCopyRhs;
}

/// The arguments besides the messages: gradient, scales, selected edges or products.
struct RandomGradient {
  RandomGradient(Draw& draw, const RandomMessage& m, bool lhs)
      : of_lhs(lhs),
        per_entry(draw.coin()),
        grad(draw, m.entries, m.dtype, m.shape.out_length(), kWhole),
        by_grad(draw.coin()),
        by_other(m.op != BinaryOp::kCopyLhs && m.op != BinaryOp::kCopyRhs && draw.coin()),
        chooses(draw.coin()),
        multiplies(!chooses && has_simple_messages(m.op) && draw.coin()),
        wide_ids(draw.coin()),
        grad_scale(draw.numbers(m.entries.rows_of(grad.access), kPowers)),
        other_scale(draw.numbers(m.entries.rows_of(other(m).access), kPowers)),
        stored_grad_scale(stored(m.dtype, true, grad_scale)),
        stored_other_scale(stored(m.dtype, true, other_scale)),
        product(draw.numbers(m.entries.rows_of(grad.access) * m.shape.out_length(), kPowers)),
        stored_product(stored(m.dtype, true, product)),
        arg(product.size()),
        stored_arg(draw_arg(draw, m.entries.num_edges()), wide_ids) {}

  const RandomRows& other(const RandomMessage& m) const { return of_lhs ? m.rhs : m.lhs; }
  /// Fills arg with edges or -1, or with `multiplies` numbers of zeros.
  std::vector<std::int64_t>& draw_arg(Draw& draw, std::int64_t num_edges) {
    for (std::int64_t& one : arg) one = multiplies ? draw.below(3) : draw.below(num_edges + 1) - 1;
    return arg;
  }
  /// The factor of element `at` of the messages' gradient for a message of this edge.
  double factor(std::size_t at, double message, std::int64_t edge) const {
    if (chooses) return arg[at] == edge ? 1 : 0;
    if (!multiplies) return 1;
    if (message == 0) return arg[at] == 1 ? product[at] : 0;
    return arg[at] == 0 ? product[at] / message : 0;
  }

  bool of_lhs, per_entry;
  RandomRows grad;
  bool by_grad, by_other, chooses, multiplies, wide_ids;
  std::vector<double> grad_scale, other_scale;
  GuardedBytes stored_grad_scale, stored_other_scale;
  std::vector<double> product;
  GuardedBytes stored_product;
  std::vector<std::int64_t> arg;
  StoredIds stored_arg;
};

std::vector<double> gradient(const RandomMessage& m, const RandomGradient& g) {
  const definition::Message message = m.message();
  const auto grad = [&](std::int64_t e, std::int64_t i) {
    const std::int64_t row = m.edges.row(target_of(g.grad.access), e);
    const std::int64_t other = m.edges.row(target_of(g.other(m).access), e);
    const auto element = static_cast<std::size_t>(row * m.shape.out_length() + i);
    double scale = g.by_grad ? g.grad_scale[static_cast<std::size_t>(row)] : 1;
    if (g.by_other) scale *= g.other_scale[static_cast<std::size_t>(other)];
    const double value = g.multiplies ? message(e, i).value : 1;
    const double factor = g.factor(element, value, m.edges.row(Target::kEdge, e));
    return definition::Term{scale * g.grad.values[element] * factor, 0};
  };
  return definition::operand_gradient(message, g.of_lhs, g.per_entry ? Target::kEdge : Target::kDst,
                                      grad)
      .value.values;
}

void check_message_grad(const Kernels& backend, Draw& draw, BinaryOp op, bool of_lhs, DType dtype) {
  const RandomMessage m(draw, op, dtype, draw.one_of(backend.hub_entries), {-2, -1, 0, 1, 2});
  const RandomGradient g(draw, m, of_lhs);
  SCOPED_TRACE(fmt::format("{} of lhs: {}, per entry: {}, chosen: {}, product: {}", m.text(),
                           of_lhs, g.per_entry, g.chooses, g.multiplies));
  const std::int64_t own = of_lhs ? m.shape.lhs_length() : m.shape.rhs_length();
  MessageGradArgs args;
  args.entries = m.entries.view();
  args.lhs = m.lhs.view();
  args.rhs = m.rhs.view();
  args.lhs.length = m.shape.lhs_length();
  args.rhs.length = m.shape.rhs_length();
  args.grad = g.grad.view();
  args.layout = m.shape.layout();
  args.op = op;
  args.of_lhs = of_lhs;
  args.per_entry = g.per_entry;
  args.dtype = dtype;
  args.arg = g.chooses || g.multiplies ? g.stored_arg.bytes.data() : nullptr;
  args.product = g.multiplies ? g.stored_product.data() : nullptr;
  args.arg_is_int64 = g.wide_ids;
  args.grad_scale = g.by_grad ? g.stored_grad_scale.data() : nullptr;
  args.other_scale = g.by_other ? g.stored_other_scale.data() : nullptr;
  args.out_is_accum = is_narrow(dtype) && draw.coin();
  expect_result(backend, draw, dtype, args.out_is_accum, m.entries.num_rows,
                g.per_entry ? rows_of_edges(m.entries) : own_rows(m.entries), gradient(m, g),
                [&](std::int64_t begin, std::int64_t end, Result& result) {
                  GuardedBytes scratch(static_cast<std::size_t>(2 * own) *
                                       element_size(dtype, /*is_accum=*/true));
                  MessageGradArgs part = with_rows(args, begin, end);
                  part.out = result.bytes.data();
                  part.out_streams = streams(begin, end);
                  part.scratch = scratch.data();
                  backend.run(part);
                });
}

TEST(KernelRanges, of_gradients_are_the_definition) {
  on_every_backend(16, [](const Kernels& backend, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() {
      for_each(BinaryOps{}, [&]<class Op>() {
        if (Op::uses_lhs) check_message_grad(backend, draw, Op::kind, true, T::kind);
        if (Op::uses_rhs) check_message_grad(backend, draw, Op::kind, false, T::kind);
      });
    });
  });
}

// The softmax. Logits that are equal or -infinity give exactly 1 / count or 0.

void check_softmax(const Kernels& backend, Draw& draw, DType dtype) {
  const RandomEntries entries(draw, draw.one_of(backend.hub_entries));
  const std::int64_t length = 1 + draw.below(70);
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> logits(static_cast<std::size_t>(entries.num_edges() * length));
  for (std::int64_t row = 0; row < entries.num_rows; ++row) {
    const auto begin = entries.indptr[static_cast<std::size_t>(row)];
    const auto end = entries.indptr[static_cast<std::size_t>(row) + 1];
    for (std::int64_t f = 0; f < length; ++f) {
      const double level = draw.one_of<double>({-200, 0, 7, 300});
      for (std::int64_t entry = begin; entry < end; ++entry) {
        const auto at =
            static_cast<std::size_t>(entries.id(Access::kSecond, row, entry) * length + f);
        const bool masked = entry + 1 < end && draw.below(3) == 0;
        logits[at] = masked ? -infinity : level;
      }
    }
  }
  const auto expected =
      definition::edge_softmax(entries.edges(), {{entries.num_edges(), length}, logits});
  const GuardedBytes stored_logits = stored(dtype, false, logits);
  const RunRows run = [&](std::int64_t begin, std::int64_t end, Result& result) {
    backend.run(SoftmaxArgs{.entries = entries.view(),
                            .row_begin = begin,
                            .row_end = end,
                            .dtype = dtype,
                            .length = length,
                            .logits = stored_logits.data(),
                            .out_ids = entries.view().second,
                            .out = result.bytes.data()});
  };
  expect_result(backend, draw, dtype, false, entries.num_rows, rows_of_edges(entries),
                expected.value.values, run);
}

void check_softmax_grad(const Kernels& backend, Draw& draw, DType dtype) {
  const RandomEntries entries(draw, draw.one_of(backend.hub_entries));
  const std::int64_t length = 1 + draw.below(70);
  const auto value = draw.numbers(entries.num_edges() * length, kPowers);
  const auto grad = draw.numbers(entries.num_edges() * length, kWhole);
  const definition::Sizes sizes = {entries.num_edges(), length};
  const auto expected =
      definition::edge_softmax_gradient(entries.edges(), {sizes, value}, {sizes, grad});
  const GuardedBytes p = stored(dtype, false, value), dp = stored(dtype, false, grad);
  const RunRows run = [&](std::int64_t begin, std::int64_t end, Result& result) {
    backend.run(SoftmaxGradArgs{.entries = entries.view(),
                                .row_begin = begin,
                                .row_end = end,
                                .dtype = dtype,
                                .length = length,
                                .value = p.data(),
                                .grad = dp.data(),
                                .out_ids = entries.view().second,
                                .out = result.bytes.data()});
  };
  expect_result(backend, draw, dtype, false, entries.num_rows, rows_of_edges(entries),
                expected.value.values, run);
}

TEST(KernelRanges, of_the_softmax_are_the_definition) {
  on_every_backend(80, [](const Kernels& backend, Draw& draw) {
    for_each(DTypes{}, [&]<class T>() {
      check_softmax(backend, draw, T::kind);
      check_softmax_grad(backend, draw, T::kind);
    });
  });
}

}  // namespace
}  // namespace mezzo::test
