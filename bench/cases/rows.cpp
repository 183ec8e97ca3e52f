#include "bench/cases/rows.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/ops/ops.h"

namespace mezzo::bench {
namespace {

/// Rows of each group, adding up to the rows of the work.
std::vector<std::int64_t> lengths_of(const GroupedRows& size) {
  double shares = 0;
  for (std::int64_t i = 0; i < size.groups; ++i) shares += 1.0 / static_cast<double>(i + 1);
  std::vector<std::int64_t> lengths;
  std::int64_t left = size.rows;
  for (std::int64_t i = 0; i + 1 < size.groups; ++i) {
    const double share = 1.0 / static_cast<double>(i + 1) / shares;
    lengths.push_back(static_cast<std::int64_t>(static_cast<double>(size.rows) * share));
    left -= lengths.back();
  }
  lengths.push_back(left);
  return lengths;
}

/// One product per group. in: rows in group order, factors.
at::Tensor loop_of_products(const std::vector<std::int64_t>& lengths, const Tensors& in) {
  Tensors parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    parts.push_back(
        in[0].narrow(0, begin, lengths[i]).mm(in[1].select(0, static_cast<std::int64_t>(i))));
    begin += lengths[i];
  }
  return at::cat(parts);
}

/// Shared by the two grouped products.
struct GroupedWork {
  GroupedRows size;
  std::int64_t width;
  std::vector<amp::Precision> precisions;
  Pass pass;

  bool backward() const { return pass == Pass::kForwardBackward; }
  /// Operations: a multiplication and an addition for each number of a row and of its factor's
  /// columns; the gradients are two products of the same size.
  Cost cost(std::int64_t element) const {
    const std::int64_t numbers = size.rows * width + size.groups * width * width;
    return {.run_bytes = numbers * element * (backward() ? 2 : 1),
            .operations = 2 * size.rows * width * width * (backward() ? 3 : 1)};
  }
  OperatorCase operator_case() const {
    const Tensors operands = {at::randn({size.rows, width}),
                              at::randn({size.groups, width, width})};
    return {pass, operands, at::randn({size.rows, width}),
            [work = *this](std::int64_t element) { return work.cost(element); }};
  }
  /// libtorch's loop, which also defines the product; its float16 products take minutes.
  void add_loop(OperatorCase& product, const Forward& loop) const {
    product.define(loop);
    std::vector<amp::Precision> fast = precisions;
    std::erase(fast, amp::Precision::kFloat16);
    product.add_baselines("loop of mm", fast, [&](at::ScalarType) { return loop; });
  }
  std::int64_t bytes() const {
    constexpr std::int64_t kOperands = 4 + 2 + 2, kDoubles = 6 * 8;
    return (size.rows + size.groups * width) * width * (kOperands + kDoubles);
  }
};

Comparison make_segment_products(const GroupedWork& work) {
  const std::vector<std::int64_t> lengths = lengths_of(work.size);
  const at::Tensor counts = at::tensor(lengths, at::kLong);
  OperatorCase product = work.operator_case();
  work.add_loop(product, [lengths](const Tensors& in) { return loop_of_products(lengths, in); });
  product.add_mezzo(work.precisions, [counts](const Tensors& in) {
    return mezzo::segment_mm(in[0], in[1], counts);
  });
  return product.take();
}

Comparison make_gathered_products(const GroupedWork& work) {
  const std::vector<std::int64_t> lengths = lengths_of(work.size);
  const at::Tensor sorted =
      at::arange(work.size.groups, at::kLong).repeat_interleave(at::tensor(lengths, at::kLong));
  const at::Tensor ids = sorted.index_select(0, at::randperm(work.size.rows, at::kLong));
  // The positions of each group's rows, and the inverse permutation.
  const at::Tensor order = ids.argsort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const at::Tensor places = order.argsort();
  OperatorCase product = work.operator_case();
  work.add_loop(product, [lengths, order, places](const Tensors& in) {
    return loop_of_products(lengths, {in[0].index_select(0, order), in[1]}).index_select(0, places);
  });
  const std::int64_t factors = work.size.rows * work.width * work.width * kFloatBytes;
  product.add_baseline(
      "index_select, bmm",
      [ids](const Tensors& in) {
        return at::bmm(in[0].unsqueeze(1), in[1].index_select(0, ids)).squeeze(1);
      },
      product.cost(amp::Precision::kFloat32, factors * (work.backward() ? 3 : 1)));
  product.add_mezzo(work.precisions,
                    [ids](const Tensors& in) { return mezzo::gather_mm(in[0], in[1], ids); });
  return product.take();
}

/// Converts results of dropout with p = 1/2 for comparison with a dropout that drops nothing. A
/// dropped element becomes its expected value plus its gradient, which must be 0. Appends 1 if the
/// number of retained elements is plausible, else 0.
Tensors fill_dropped(const Tensors& expected, const Tensors& results) {
  const at::Tensor out = results[0].to(at::kFloat), dropped = out.eq(0);
  Tensors undropped = {at::where(dropped, expected[0], out)};
  if (results.size() > 1) {
    const at::Tensor back = results[1].to(at::kFloat);
    undropped.push_back(at::where(dropped, expected[1] + back, back));
  }
  const auto count = static_cast<double>(out.numel());
  const double off = std::abs(static_cast<double>(dropped.sum().item<std::int64_t>()) - count / 2);
  undropped.push_back(at::full({1}, off <= 6 * std::sqrt(count) / 2 ? 1.0 : 0.0, at::kFloat));
  return undropped;
}

Comparison make_row_dropout(std::int64_t rows, std::int64_t width,
                            const std::vector<amp::Precision>& precisions, Pass pass) {
  constexpr double kHalf = 0.5;
  const at::Tensor x = at::rand({rows, width}) + kHalf;  // nonzero in every precision
  const at::Tensor gradient = at::randn({rows, width});
  const bool backward = pass == Pass::kForwardBackward;
  OperatorCase dropout(pass, {x}, gradient, [=](std::int64_t size) {
    // Forward: rows read, results written; backward: the same for the gradients. A mask not
    // counted.
    return Cost{x.numel() * size * (backward ? 2 : 1), x.numel() * size * (backward ? 4 : 2)};
  });
  Tensors expected = {x * 2};
  if (backward) expected.push_back(gradient * 2);
  for (const at::Tensor& result : expected) dropout.expect({result});
  dropout.expect({at::ones({1})});
  dropout.add_baselines("libtorch", precisions, [](at::ScalarType) -> Forward {
    return [](const Tensors& in) { return at::dropout(in[0], kHalf, true); };
  });
  dropout.add_mezzo(precisions, [](const Tensors& in) {
    return mezzo::feature_dropout(in[0], kHalf, /*training=*/true);
  });
  return dropout.take(
      [expected](const Tensors& results) { return fill_dropped(expected, results); });
}

std::string product_text(const char* name, const GroupedWork& work) {
  return fmt::format("{}, {} rows, {} factors{}", name, work.size.rows, work.size.groups,
                     suffix(work.pass));
}

}  // namespace

Plan segment_products(const GroupedRows& size, std::int64_t width,
                      const std::vector<amp::Precision>& precisions, Pass pass) {
  const GroupedWork work{size, width, precisions, pass};
  return {.work = product_text("segment_mm", work),
          .width = width,
          .bytes = work.bytes(),
          .make = [work] { return make_segment_products(work); }};
}

Plan gathered_products(const GroupedRows& size, std::int64_t width,
                       const std::vector<amp::Precision>& precisions, Pass pass) {
  const GroupedWork work{size, width, precisions, pass};
  return {.work = product_text("gather_mm", work),
          .width = width,
          .bytes = work.bytes(),
          .make = [work] { return make_gathered_products(work); }};
}

Plan row_dropout(std::int64_t rows, std::int64_t width,
                 const std::vector<amp::Precision>& precisions, Pass pass) {
  constexpr std::int64_t kOperandBytes = 2 * (4 + 2 + 2), kExpectedBytes = 2 * 4 + 3 * 4;
  return {.work = fmt::format("dropout, {} rows{}", rows, suffix(pass)),
          .width = width,
          .bytes = rows * width * (kOperandBytes + kExpectedBytes),
          .make = [=] { return make_row_dropout(rows, width, precisions, pass); }};
}

}  // namespace mezzo::bench
