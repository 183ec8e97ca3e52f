#include "bench/cases/reducers.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/type_list.h"
#include "mezzo/message_passing/ops.h"

#include "bench/cases/sizes.h"

namespace mezzo::bench {
namespace {

/// Columns whose results are compared; their references hold E x kCheckedColumns tensors of
/// float64.
constexpr std::int64_t kCheckedColumns = 8;

std::int64_t checked_columns(std::int64_t width) {
  return std::min(width, kCheckedColumns);
}

at::Tensor checked(const at::Tensor& rows) {
  const std::int64_t width = rows.size(1);
  return rows.slice(1, 0, width, width / checked_columns(width))
      .narrow(1, 0, checked_columns(width));
}

/// libtorch's word for a reducer.
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

/// Messages [E, F] reduced at each destination; 0 where there are none.
at::Tensor scattered(const LibtorchGraph& torch, const at::Tensor& messages,
                     const std::string& word) {
  return at::zeros({torch.num_dst(), messages.size(1)}, messages.options())
      .scatter_reduce(0, torch.dst().unsqueeze(1).expand_as(messages), messages, word,
                      /*include_self=*/false);
}

/// The gradient of a max or min goes to the message of the lowest edge id among those that are the
/// result. x, gradient: float64.
Tensors extreme_in_float64(const LibtorchGraph& torch, const std::string& word, const at::Tensor& x,
                           const at::Tensor& gradient) {
  const at::Tensor messages = x.index_select(0, torch.src());
  const at::Tensor out = scattered(torch, messages, word);
  const at::Tensor is_result = messages.eq(out.index_select(0, torch.dst()));
  const std::int64_t none = torch.num_edges();
  const at::Tensor ids = at::arange(none, at::kLong).unsqueeze(1);
  const at::Tensor first =
      at::full(out.sizes(), none, at::kLong)
          .scatter_reduce(0, torch.dst().unsqueeze(1).expand_as(messages),
                          at::where(is_result, ids, at::full({1, 1}, none, at::kLong)), "amin");
  const at::Tensor sources =
      torch.src().index_select(0, first.clamp_max(none - 1).flatten()).view(first.sizes());
  const at::Tensor back =
      at::zeros_like(x).scatter_add(0, sources, gradient * first.lt(none).to(at::kDouble));
  return {out, back};
}

Tensors reduced_in_float64(const LibtorchGraph& torch, ReduceOp reduce, const at::Tensor& x,
                           const at::Tensor& gradient) {
  const at::Tensor ones = at::ones({torch.num_edges()});
  if (reduce == ReduceOp::kProd) {
    const at::Tensor out = scattered(torch, x.index_select(0, torch.src()), word_of(reduce));
    // The derivative of a product to a factor of 1 or -1 is the product times it.
    return {out, reference_transposed_sum(torch, gradient * out, ones) * x};
  }
  if (reduce == ReduceOp::kMean || reduce == ReduceOp::kSum) {
    at::Tensor counts = at::ones({torch.num_dst(), 1}, at::kDouble);
    if (reduce == ReduceOp::kMean) {
      counts = at::bincount(torch.dst(), {}, torch.num_dst()).clamp_min(1).unsqueeze(1);
    }
    return {reference_sum(torch, x, ones) / counts,
            reference_transposed_sum(torch, gradient / counts, ones)};
  }
  return extreme_in_float64(torch, word_of(reduce), x, gradient);
}

void add_reduce_baselines(Candidates& list, const Workload& load, const Sizes& sizes,
                          ReduceOp reduce, const std::function<Cost(std::int64_t)>& cost) {
  const auto torch = load.torch;
  const std::string word = word_of(reduce);
  if (reduce == ReduceOp::kProd) {
    list.add_unsupported("CSR mm reduce", "libtorch's sparse product does not multiply messages");
    list.add_baseline(
        "gather-scatter",
        [torch, word](const Tensors& in) {
          return scattered(*torch, in[0].index_select(0, torch->src()), word);
        },
        {cost(kFloatBytes).run_bytes + sizes.messages() * (sizes.backward() ? 6 : 2)});
    return;
  }
  for_each_type(load, [&](amp::Precision precision) {
    const at::Tensor ones = at::ones({sizes.num_edges}).to(storage_type(precision));
    const at::Tensor values = torch->matrix(ones);
    Cost of_run = cost(element_bytes(precision));
    of_run.run_bytes += sizes.sorting();
    list.add_baseline(
        in_type("CSR mm reduce", precision),
        [values, word](const Tensors& in) { return at::_sparse_mm(values, in[0], word); }, of_run,
        precision);
  });
}

Comparison make_copy_u_reduce(const Workload& load, ReduceOp reduce, const Sizes& sizes) {
  const at::Tensor drawn = at::randn({sizes.num_src, sizes.width});
  const at::Tensor x = reduce == ReduceOp::kProd ? at::where(drawn.lt(0), -1.0, 1.0).to(at::kFloat)
                                                 : drawn.to(at::kBFloat16).to(at::kFloat);
  const at::Tensor gradient = at::randn({sizes.num_dst, sizes.width});
  const bool extreme = reduce == ReduceOp::kMax || reduce == ReduceOp::kMin;
  const auto cost = [&](std::int64_t size) {
    // As a sum; which message it was is written and read once where that decides the gradient.
    const std::int64_t chosen =
        extreme && sizes.backward() ? 2 * sizes.num_dst * sizes.width * sizes.id_bytes : 0;
    return Cost{sizes.nodes(size) + chosen,
                sizes.sum(size, false) * (sizes.backward() ? 2 : 1) + chosen};
  };

  Comparison comparison;
  const Tensors reference =
      reduced_in_float64(*load.torch, reduce, checked(x).to(at::kDouble).contiguous(),
                         checked(gradient).to(at::kDouble).contiguous());
  comparison.expected = {{reference[0].to(at::kFloat)}};
  if (sizes.backward()) comparison.expected.push_back({reference[1].to(at::kFloat)});
  Candidates list(sizes.pass, {x}, gradient);
  add_reduce_baselines(list, load, sizes, reduce, cost);
  list.add_mezzo(
      load.precisions,
      [topology = load.topology, reduce](const Tensors& in) {
        return gspmm(topology, BinaryOp::kCopyLhs, reduce, in[0], std::nullopt);
      },
      cost);
  comparison.candidates = list.take();
  for (Candidate& candidate : comparison.candidates) {
    candidate.arrange = [](Tensors results) {
      for (at::Tensor& result : results) result = checked(result);
      return results;
    };
  }
  return comparison;
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
  const auto cost = [&](std::int64_t size) {
    // As a plain sum; a scale for each neighbour's row and each result.
    const std::int64_t scales = (sizes.num_edges + sizes.num_dst) * kFloatBytes;
    return Cost{sizes.nodes(size), (sizes.sum(size, false) + scales) * (sizes.backward() ? 2 : 1)};
  };

  Comparison comparison;
  comparison.expected = {{reference_sum(*torch, x, exact_values)}};
  if (sizes.backward()) {
    comparison.expected.push_back({reference_transposed_sum(*torch, gradient, exact_values)});
  }
  Candidates list(sizes.pass, {x}, gradient);
  if (sizes.backward()) {
    list.add_handwritten(
        "cached transpose",
        [=]() -> Tensors {
          return {matrix.mm(x), transposed.mm(gradient)};
        },
        cost(kFloatBytes));
  } else {
    list.add_baseline(
        "CSR mm", [matrix](const Tensors& in) { return at::mm(matrix, in[0]); }, cost(kFloatBytes));
  }
  for_each_type(load, [&](amp::Precision precision) {
    const at::ScalarType type = storage_type(precision);
    const at::Tensor ones = torch->matrix(at::ones({sizes.num_edges}).to(type));
    const at::Tensor before = out_scale.to(type).unsqueeze(1);
    const at::Tensor after = in_scale.to(type).unsqueeze(1);
    Cost of_run = cost(element_bytes(precision));
    of_run.run_bytes += sizes.sorting() + 2 * sizes.nodes(element_bytes(precision));
    list.add_baseline(
        in_type("scale, CSR mm reduce, scale", precision),
        [=](const Tensors& in) { return at::_sparse_mm(ones, in[0] * before, "sum") * after; },
        of_run, precision);
  });
  list.add_mezzo(
      load.precisions,
      [topology = load.topology, out_scale, in_scale](const Tensors& in) {
        return mezzo::scaled_sum(topology, in[0], std::nullopt, out_scale, in_scale);
      },
      cost);
  comparison.candidates = list.take();
  return comparison;
}

}  // namespace

Plan copy_u_reduce(const Workload& load, ReduceOp reduce, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  const std::int64_t nodes = sizes.nodes(1);
  constexpr std::int64_t kDoubles = 5;  // of E x checked columns, alive at once
  return {.work = "copy_u " + std::string(name_of(ReduceOps{}, reduce)) + suffix(pass),
          .width = width,
          .bytes = operand_bytes(load, nodes + 2 * sizes.num_edges, nodes) +
                   kDoubles * 8 * sizes.num_edges * checked_columns(width),
          .make = [load, reduce, sizes] { return make_copy_u_reduce(load, reduce, sizes); }};
}

Plan degree_scaled_sum(const Workload& load, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  const std::int64_t nodes = sizes.nodes(1);
  return {.work = "scaled sum" + suffix(pass),
          .width = width,
          .bytes = operand_bytes(load, nodes + 6 * sizes.num_edges, nodes),
          .make = [load, sizes] { return make_degree_scaled_sum(load, sizes); }};
}

}  // namespace mezzo::bench
