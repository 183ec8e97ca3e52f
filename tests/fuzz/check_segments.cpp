// Compares reductions, softmax and products of row segments with the definitions.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/ops/ops.h"

#include "fuzz/checks.h"
#include "tests/definitions/gather_mm.h"

namespace mezzo::test {
namespace {

/// Rows in segments of random lengths, some of them empty.
struct Segments {
  Segments(Draw& draw, std::int64_t count, std::int64_t longest) {
    std::vector<std::int64_t> drawn;
    for (std::int64_t s = 0; s < count; ++s) {
      drawn.push_back(draw.one_in(3) ? 0 : draw.below(longest + 1));
    }
    lengths = in_some_layout(draw, ids(drawn));
    of_row = at::arange(count, on_device(at::kLong)).repeat_interleave(lengths);
    num_rows = of_row.size(0);
  }
  /// Edges from each row to its segment.
  Topology graph() const {
    return Topology::from_coo(at::arange(num_rows, on_device(at::kLong)), of_row, num_rows,
                              lengths.size(0));
  }
  std::vector<std::int64_t> sizes(const std::vector<std::int64_t>& trailing) const {
    std::vector<std::int64_t> all = {num_rows};
    all.insert(all.end(), trailing.begin(), trailing.end());
    return all;
  }

  at::Tensor lengths, of_row;
  std::int64_t num_rows = 0;
};

Segments random_segments(Draw& draw, std::int64_t longest) {
  return {draw, draw.one_of<std::int64_t>({0, 1, 2, 5, 30}), longest};
}

std::vector<std::int64_t> random_trailing(Draw& draw) {
  return draw.one_of<std::vector<std::int64_t>>({{}, {1}, {5}, {2, 3}, {33}, {0}, {3, 1, 2}});
}

}  // namespace

void check_segment_reduce(Draw& draw) {
  std::vector<ReduceOp> reducers;
  mezzo::detail::for_each(ReduceOps{}, [&]<class Reduce>() { reducers.push_back(Reduce::kind); });
  const ReduceOp reduce = draw.one_of(reducers);
  // Long products leave the range in which float32 agrees with the definition.
  const std::int64_t longest =
      reduce == ReduceOp::kProd ? 8 : draw.one_of<std::int64_t>({3, 12, 100});
  const Segments segments = random_segments(draw, longest);
  const DTypeInfo dtype = draw.one_of(dtypes());
  const auto sizes = segments.sizes(random_trailing(draw));
  const at::Tensor x = random_leaf(draw, draw.coin() ? integers(sizes, dtype.scalar, draw.seed())
                                                     : uniform(sizes, dtype.scalar, draw.seed()));
  const std::string what = fmt::format("{} of {} segments of {} [{}]", name_of(ReduceOps{}, reduce),
                                       segments.lengths.size(0), dtype.name, fmt::join(sizes, ","));
  const at::Tensor out = segment_reduce(reduce, segments.lengths, x);
  if (out.scalar_type() != dtype.scalar) throw Failure(what + ": result of another dtype");
  const Topology graph = segments.graph();
  const Operand64 rows = x.detach().to(at::kDouble);
  require_near(out, gspmm_reference(graph, BinaryOp::kCopyLhs, reduce, rows, std::nullopt), what);
  if (const auto grad = backward(draw, out, Values::kAny)) {
    const auto expected =
        gspmm_gradients(graph, BinaryOp::kCopyLhs, reduce, rows, std::nullopt, *grad);
    require_gradient(x, true, expected.lhs, "gradient of the " + what);
  }
}

void check_segment_softmax(Draw& draw) {
  const Segments segments = random_segments(draw, draw.one_of<std::int64_t>({3, 12, 100}));
  const DTypeInfo dtype = draw.one_of(dtypes());
  const auto sizes = segments.sizes(random_trailing(draw));
  const double range = draw.one_of<double>({0, 1, 20, 200});
  const at::Tensor x =
      leaf(in_some_layout(draw, uniform(sizes, dtype.scalar, draw.seed(), -range / 2, range / 2)));
  const std::string what =
      fmt::format("softmax of {} segments of {} [{}], range {}", segments.lengths.size(0),
                  dtype.name, fmt::join(sizes, ","), range);
  require_softmax(draw, segments.graph(), Target::kDst, x, segment_softmax(segments.lengths, x),
                  range, what);
}

void check_products(Draw& draw) {
  const auto factors = draw.one_of<std::int64_t>({1, 2, 7});
  const auto in = draw.one_of<std::int64_t>({1, 3, 16, 65});
  const auto width = draw.one_of<std::int64_t>({1, 2, 17, 64});
  const DTypeInfo dtype = draw.one_of(dtypes());
  const Segments segments(draw, factors, draw.one_of<std::int64_t>({1, 5, 40}));
  const bool gather = draw.coin();
  at::Tensor relation = segments.of_row;
  if (gather && draw.coin()) {
    std::vector<std::int64_t> drawn;
    for (std::int64_t i = 0; i < segments.num_rows; ++i) drawn.push_back(draw.below(factors));
    relation = ids(drawn);
  }
  const auto numbers_of = [&](const std::vector<std::int64_t>& sizes) {
    return random_leaf(draw, uniform(sizes, dtype.scalar, draw.seed()));
  };
  const at::Tensor a = numbers_of({segments.num_rows, in});
  const at::Tensor b = numbers_of({factors, in, width});
  const std::string what = fmt::format("{} of {} [{}, {}] and {} factors of {} columns",
                                       gather ? "gather_mm" : "segment_mm", dtype.name,
                                       segments.num_rows, in, factors, width);
  const at::Tensor out = gather ? gather_mm(a, b, relation) : segment_mm(a, b, segments.lengths);
  using definition::array_of;
  const auto define = [&](const at::Tensor& grad) {
    return definition::gather_mm(array_of(a), array_of(b), definition::ids_of(relation),
                                 array_of(grad));
  };
  require_defined(draw, out, dtype.scalar, {a, b}, define, what);
}

}  // namespace mezzo::test
