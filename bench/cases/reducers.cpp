#include "bench/cases/reducers.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/type_list.h"
#include "mezzo/ops/ops.h"

#include "bench/cases/sizes.h"
#include "tests/definitions/gspmm.h"
#include "tests/definitions/tensors.h"

namespace mezzo::bench {
namespace {

/// Columns whose results are compared; the definition of a product's gradient holds E x
/// kCheckedColumns numbers.
constexpr std::int64_t kCheckedColumns = 8;

std::int64_t checked_columns(std::int64_t width) {
  return std::min(width, kCheckedColumns);
}

at::Tensor checked(const at::Tensor& rows) {
  const std::int64_t width = rows.size(1);
  return rows.slice(1, 0, width, width / checked_columns(width))
      .narrow(1, 0, checked_columns(width));
}

/// libtorch's name of a reducer.
std::string word_of(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::kMax:
      return "amax";
    case ReduceOp::kMin:
      return "amin";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kProd:
      return "prod";
    case ReduceOp::kSum:
      break;
  }
  return "sum";
}

/// Messages [E, F] reduced at each destination; 0 without messages.
at::Tensor scattered(const LibtorchGraph& torch, const at::Tensor& messages,
                     const std::string& word) {
  return at::zeros({torch.num_dst(), messages.size(1)}, messages.options())
      .scatter_reduce(0, torch.dst().unsqueeze(1).expand_as(messages), messages, word,
                      /*include_self=*/false);
}

/// The definition's result and gradient on a few columns.
Tensors defined_reduction(const Topology& topology, ReduceOp reduce, const at::Tensor& x,
                          const at::Tensor& gradient) {
  const definition::Edges edges = definition::edges_of(topology);
  const definition::Array rows = definition::array_of(x), none;
  const definition::Message message{
      .edges = edges, .op = BinaryOp::kCopyLhs, .lhs = rows, .rhs = none};
  const definition::Reduced reduced = definition::gspmm(message, reduce);
  const definition::Gradients gradients =
      definition::gspmm_gradients(message, reduce, reduced, definition::array_of(gradient));
  return {definition::tensor_of(reduced.out.value).to(at::kFloat),
          definition::tensor_of(gradients.lhs.value).to(at::kFloat)};
}

void add_reduce_baselines(OperatorCase& reduction, const Workload& load, const Sizes& sizes,
                          ReduceOp reduce) {
  const auto torch = load.torch;
  const std::string word = word_of(reduce);
  if (reduce == ReduceOp::kProd) {
    reduction.add_unsupported("CSR mm reduce",
                              "libtorch's sparse product does not multiply messages");
    reduction.add_baseline(
        "gather-scatter",
        [torch, word](const Tensors& in) {
          return scattered(*torch, in[0].index_select(0, torch->src()), word);
        },
        {reduction.cost().run_bytes + sizes.messages() * (sizes.backward() ? 6 : 2)});
    return;
  }
  const auto reduce_in = [&](at::ScalarType type) -> Forward {
    const at::Tensor matrix = torch->matrix(at::ones({sizes.num_edges}).to(type));
    return [matrix, word](const Tensors& in) { return at::_sparse_mm(matrix, in[0], word); };
  };
  reduction.add_baselines("CSR mm reduce", load.precisions, reduce_in, sizes.sorting());
}

Comparison make_copy_u_reduce(const Workload& load, const Sizes& sizes, ReduceOp reduce) {
  const at::Tensor drawn = at::randn({sizes.num_src, sizes.width});
  const at::Tensor x = reduce == ReduceOp::kProd ? at::where(drawn.lt(0), -1.0, 1.0).to(at::kFloat)
                                                 : drawn.to(at::kBFloat16).to(at::kFloat);
  const at::Tensor gradient = at::randn({sizes.num_dst, sizes.width});
  const bool extreme = reduce == ReduceOp::kMax || reduce == ReduceOp::kMin;
  OperatorCase reduction(sizes.pass, {x}, gradient, [sizes, extreme](std::int64_t size) {
    // As a sum; which message it was is written and read once if that decides the gradient.
    const std::int64_t chosen =
        extreme && sizes.backward() ? 2 * sizes.num_dst * sizes.width * sizes.id_bytes : 0;
    return Cost{sizes.nodes(size) + chosen,
                sizes.sum(size, false) * (sizes.backward() ? 2 : 1) + chosen};
  });
  const Tensors expected = defined_reduction(load.topology, reduce, checked(x), checked(gradient));
  reduction.expect({expected[0]});
  if (sizes.backward()) reduction.expect({expected[1]});
  add_reduce_baselines(reduction, load, sizes, reduce);
  reduction.add_mezzo(load.precisions, [topology = load.topology, reduce](const Tensors& in) {
    return gspmm(topology, BinaryOp::kCopyLhs, reduce, in[0], std::nullopt);
  });
  return reduction.take([](Tensors results) {
    for (at::Tensor& result : results) result = checked(result);
    return results;
  });
}

/// 1 / sqrt(degree), 0 for nodes without edges. degrees: int64 [N].
at::Tensor scales_of(const at::Tensor& degrees) {
  const at::Tensor roots = degrees.clamp_min(1).to(at::kDouble).rsqrt();
  return (roots * degrees.gt(0)).to(at::kFloat);
}

Comparison make_degree_scaled_sum(const Workload& load, const Sizes& sizes) {
  const auto torch = load.torch;
  const at::Tensor x = at::randn({sizes.num_src, sizes.width});
  const at::Tensor gradient = at::randn({sizes.num_dst, sizes.width});
  const at::Tensor out_scale = scales_of(load.topology.out_degrees());
  const at::Tensor in_scale = scales_of(load.topology.in_degrees());
  const at::Tensor of_edges = out_scale.to(at::kDouble).index_select(0, torch->src()) *
                              in_scale.to(at::kDouble).index_select(0, torch->dst());
  const at::Tensor exact_values = torch->to_csr_order(of_edges);
  const at::Tensor values = exact_values.to(at::kFloat);
  const at::Tensor matrix = torch->matrix(values), transposed = torch->transpose(values);
  OperatorCase sum(sizes.pass, {x}, gradient, [sizes](std::int64_t size) {
    // As a plain sum; a scale for each neighbour's row and each result.
    const std::int64_t scales = (sizes.num_edges + sizes.num_dst) * kFloatBytes;
    return Cost{sizes.nodes(size), (sizes.sum(size, false) + scales) * (sizes.backward() ? 2 : 1)};
  });
  sum.expect({reference_sum(*torch, x, exact_values)});
  if (sizes.backward()) {
    sum.expect({reference_transposed_sum(*torch, gradient, exact_values)});
    const auto run = [=]() -> Tensors { return {matrix.mm(x), transposed.mm(gradient)}; };
    sum.add_handwritten("cached transpose", run, sum.cost());
  } else {
    sum.add_baseline(
        "CSR mm", [matrix](const Tensors& in) { return at::mm(matrix, in[0]); }, sum.cost());
  }
  const auto scale_in = [&](at::ScalarType type) -> Forward {
    const at::Tensor ones = torch->matrix(at::ones({sizes.num_edges}).to(type));
    const at::Tensor before = out_scale.to(type).unsqueeze(1);
    const at::Tensor after = in_scale.to(type).unsqueeze(1);
    return [=](const Tensors& in) { return at::_sparse_mm(ones, in[0] * before, "sum") * after; };
  };
  sum.add_baselines("scale, CSR mm reduce, scale", load.precisions, scale_in,
                    sizes.sorting() + 2 * sizes.nodes(kFloatBytes));
  sum.add_mezzo(load.precisions,
                [topology = load.topology, out_scale, in_scale](const Tensors& in) {
                  return mezzo::scaled_sum(topology, in[0], std::nullopt, out_scale, in_scale);
                });
  return sum.take();
}

}  // namespace

Plan copy_u_reduce(const Workload& load, ReduceOp reduce, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  constexpr std::int64_t kDoubles = 5;  // of E x checked columns, alive at once
  return graph_plan(
      "copy_u " + std::string(name_of(ReduceOps{}, reduce)), load, sizes,
      operand_bytes(load, sizes, 2) + kDoubles * 8 * sizes.num_edges * checked_columns(width),
      [reduce](const Workload& on, const Sizes& of) { return make_copy_u_reduce(on, of, reduce); });
}

Plan degree_scaled_sum(const Workload& load, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  return graph_plan("scaled sum", load, sizes, operand_bytes(load, sizes, 6),
                    make_degree_scaled_sum);
}

}  // namespace mezzo::bench
