#include "bench/cases/kernels.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/table.h"
#include "mezzo/ops/ops.h"

#include "bench/cases/sizes.h"
#include "bench/harness/machine.h"

namespace mezzo::bench {
namespace {

/// libtorch's sparse product with a reduction, of the matrix with these values (CSR order).
std::function<Forward(at::ScalarType)> reduce_mm(const LibtorchGraph& torch,
                                                 const at::Tensor& values) {
  return [&torch, values](at::ScalarType type) -> Forward {
    return [matrix = torch.matrix(values.to(type))](const Tensors& in) {
      return at::_sparse_mm(matrix, in[0], "sum");
    };
  };
}

Comparison make_copy_u_sum(const Workload& load, const Sizes& sizes) {
  const auto torch = load.torch;
  const at::Tensor x = at::randn({sizes.num_src, sizes.width});
  const at::Tensor gradient = at::randn({sizes.num_dst, sizes.width});
  const at::Tensor ones = at::ones({sizes.num_edges});
  const at::Tensor matrix = torch->matrix(ones), transposed = torch->transpose(ones);
  OperatorCase sum(sizes.pass, {x}, gradient, [sizes](std::int64_t size) {
    return Cost{sizes.nodes(size), sizes.sum(size, false) * (sizes.backward() ? 2 : 1)};
  });
  sum.expect({reference_sum(*torch, x, ones)});
  if (sizes.backward()) {
    sum.expect({reference_transposed_sum(*torch, gradient, ones)});
    const auto run = [=]() -> Tensors { return {matrix.mm(x), transposed.mm(gradient)}; };
    sum.add_handwritten("cached transpose", run, sum.cost());
  }
  sum.add_baseline(
      sizes.backward() ? "CSR autograd" : "CSR mm",
      [matrix](const Tensors& in) { return at::mm(matrix, in[0]); },
      sum.cost(amp::Precision::kFloat32, sizes.sorting()));
  sum.add_baselines("CSR mm reduce", load.precisions, reduce_mm(*torch, ones), sizes.sorting());
  sum.add_baseline(
      "gather-scatter", [torch](const Tensors& in) { return torch->gather_scatter(in[0]); },
      {sizes.nodes(4) + sizes.messages() * (sizes.backward() ? 2 : 1) + sizes.sorting()});
  sum.add_mezzo(load.precisions, [topology = load.topology](const Tensors& in) {
    return gspmm(topology, BinaryOp::kCopyLhs, ReduceOp::kSum, in[0], std::nullopt);
  });
  return sum.take();
}

/// The fastest handwritten libtorch version, with weights in CSR order.
Tensors weighted_by_hand(const LibtorchGraph& torch, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& gradient) {
  const at::Tensor matrix = torch.matrix(weight);
  return {matrix.mm(x), torch.transpose(weight).mm(gradient),
          at::sparse_sampled_addmm(matrix, gradient, x.t(), /*beta=*/0).values()};
}

/// Autograd of the sparse product with a reduction; the weights get a sparse gradient.
Tensors weighted_reduce(const LibtorchGraph& torch, const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& gradient) {
  const at::Tensor matrix = torch.matrix(weight).requires_grad_();
  const at::Tensor rows = x.detach().requires_grad_();
  const at::Tensor out = at::_sparse_mm(matrix, rows, "sum");
  out.backward(gradient);
  return {out.detach(), rows.grad(), matrix.grad().values()};
}

void add_weighted_baselines(OperatorCase& sum, const Workload& load, const Sizes& sizes,
                            const at::Tensor& x, const at::Tensor& weights,
                            const at::Tensor& gradient) {
  const auto torch = load.torch;
  const Cost cost = sum.cost();
  if (sizes.backward()) {
    const auto arrange = [torch](Tensors results) {
      results[2] = torch->to_edge_order(results[2]).unsqueeze(1);
      return results;
    };
    sum.add_handwritten(
        "cached transpose", [=] { return weighted_by_hand(*torch, x, weights, gradient); }, cost,
        arrange);
    sum.add_unsupported("CSR autograd", "its gradient of the weights is a dense N x N matrix");
    sum.add_handwritten(
        "CSR mm reduce", [=] { return weighted_reduce(*torch, x, weights, gradient); },
        sum.cost(amp::Precision::kFloat32, sizes.sorting()), arrange);
  } else {
    sum.add_handwritten(
        "CSR mm", [=]() -> Tensors { return {torch->matrix(weights).mm(x)}; }, cost);
    sum.add_baselines("CSR mm reduce", load.precisions, reduce_mm(*torch, weights),
                      sizes.sorting());
  }
  sum.add_baseline(
      "gather-scatter", [torch](const Tensors& in) { return torch->gather_scatter(in[0], in[1]); },
      {cost.run_bytes + sizes.messages() * (sizes.backward() ? 4 : 2) + sizes.sorting()});
}

Comparison make_u_mul_e_sum(const Workload& load, const Sizes& sizes) {
  const LibtorchGraph& torch = *load.torch;
  const at::Tensor x = at::randn({sizes.num_src, sizes.width});
  const at::Tensor by_edge = at::randn({sizes.num_edges, 1});
  const at::Tensor gradient = at::randn({sizes.num_dst, sizes.width});
  const at::Tensor weights = torch.to_csr_order(by_edge).squeeze(1);
  OperatorCase sum(sizes.pass, {x, by_edge}, gradient, [sizes](std::int64_t size) {
    const std::int64_t back = sizes.backward() ? sizes.sum(size, true) + sizes.dot(size) : 0;
    return Cost{sizes.nodes(size) + 2 * sizes.edges(size), sizes.sum(size, true) + back};
  });
  sum.expect({reference_sum(torch, x, weights)});
  if (sizes.backward()) {
    const std::int64_t stride = checked_edges_stride(sizes.num_edges);
    sum.expect({reference_transposed_sum(torch, gradient, weights)});
    sum.expect({reference_dot(torch, x, gradient, stride), stride});
  }
  add_weighted_baselines(sum, load, sizes, x, weights, gradient);
  sum.add_mezzo(load.precisions, [topology = load.topology](const Tensors& in) {
    return gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, in[0], in[1]);
  });
  return sum.take();
}

/// The fastest handwritten libtorch version: dot products, and two sums in backward.
Tensors dot_by_hand(const LibtorchGraph& torch, const at::Tensor& pattern, const at::Tensor& x,
                    const at::Tensor& y, const at::Tensor& gradient) {
  Tensors results = {at::sparse_sampled_addmm(pattern, y, x.t(), /*beta=*/0).values()};
  if (gradient.defined()) {
    results.push_back(torch.transpose(gradient).mm(y));
    results.push_back(torch.matrix(gradient).mm(x));
  }
  return results;
}

Comparison make_u_dot_v(const Workload& load, const Sizes& sizes) {
  const auto torch = load.torch;
  const at::Tensor x = at::randn({sizes.num_src, sizes.width});
  const at::Tensor y = at::randn({sizes.num_dst, sizes.width});
  const at::Tensor gradient = at::randn({sizes.num_edges, 1});
  const at::Tensor pattern = torch->matrix(at::ones({sizes.num_edges}));
  const at::Tensor csr_weights =
      sizes.backward() ? torch->to_csr_order(gradient).squeeze(1) : at::Tensor();
  OperatorCase dot(sizes.pass, {x, y}, gradient, [sizes](std::int64_t size) {
    const std::int64_t back = sizes.backward() ? 2 * sizes.sum(size, true) : 0;
    return Cost{sizes.nodes(size) + 2 * sizes.edges(size), sizes.dot(size) + back};
  });
  const std::int64_t stride = checked_edges_stride(sizes.num_edges);
  dot.expect({reference_dot(*torch, x, y, stride), stride});
  if (sizes.backward()) {
    dot.expect({reference_transposed_sum(*torch, y, csr_weights)});
    dot.expect({reference_sum(*torch, x, csr_weights)});
  }
  dot.add_handwritten(
      sizes.backward() ? "sampled_addmm, cached transpose" : "sampled_addmm",
      [=] { return dot_by_hand(*torch, pattern, x, y, csr_weights); }, dot.cost(),
      [torch](Tensors results) {
        results[0] = torch->to_edge_order(results[0]).unsqueeze(1);
        return results;
      });
  dot.add_baseline("gather", [torch](const Tensors& in) { return torch->gather_dot(in[0], in[1]); },
                   {dot.cost().run_bytes + sizes.messages() * (sizes.backward() ? 4 : 3)});
  dot.add_mezzo(load.precisions, [topology = load.topology](const Tensors& in) {
    return gsddmm(topology, BinaryOp::kDot, in[0], in[1]);
  });
  return dot.take();
}

Comparison make_softmax(const Workload& load, const Sizes& sizes) {
  const at::Tensor logits = at::randn({sizes.num_edges, sizes.width});
  const at::Tensor gradient = at::randn({sizes.num_edges, sizes.width});
  const Forward gather = [torch = load.torch](const Tensors& in) {
    return torch->gather_softmax(in[0]);
  };
  OperatorCase softmax(sizes.pass, {logits}, gradient, [sizes](std::int64_t size) {
    // Tensors of the edges, once each with the row pointers. Forward: logits read, softmax written;
    // backward: softmax and gradient read, gradient of the logits written.
    const std::int64_t tensors = sizes.backward() ? 5 : 2;
    return Cost{sizes.num_edges * sizes.width * size * 3,
                (sizes.num_edges * sizes.width * size + sizes.num_dst * 8) * tensors};
  });
  const std::int64_t stride = checked_edges_stride(sizes.num_edges);
  softmax.define(gather, stride, stride);
  softmax.add_baseline("gather-scatter", gather, {sizes.messages() * 6 + sizes.sorting()});
  softmax.add_mezzo(load.precisions, [topology = load.topology](const Tensors& in) {
    return edge_softmax(topology, in[0]);
  });
  return softmax.take();
}

Comparison make_segment_sum(const Workload& load, const Sizes& sizes) {
  const at::Tensor lengths = load.topology.in_degrees();
  const at::Tensor x = at::randn({sizes.num_edges, sizes.width});
  const at::Tensor gradient = at::randn({sizes.num_dst, sizes.width});
  const Forward libtorch = [lengths](const Tensors& in) {
    return at::segment_reduce(in[0], "sum", lengths, {}, {}, /*axis=*/0, /*unsafe=*/true);
  };
  OperatorCase sum(sizes.pass, {x}, gradient, [sizes](std::int64_t size) {
    // The rows and the results, once each. Forward: rows read, sums written; backward: gradients of
    // the sums read, gradients of the rows written.
    const std::int64_t bytes = (sizes.num_edges + sizes.num_dst) * sizes.width * size;
    return Cost{bytes, bytes * (sizes.backward() ? 2 : 1)};
  });
  sum.define(libtorch, 1, checked_edges_stride(sizes.num_edges));
  sum.add_baseline("segment_reduce", libtorch, sum.cost());
  sum.add_mezzo(load.precisions, [lengths](const Tensors& in) {
    return mezzo::segment_reduce(ReduceOp::kSum, lengths, in[0]);
  });
  return sum.take();
}

}  // namespace

Workload make_workload(const Topology& topology, std::vector<amp::Precision> precisions) {
  // CSR, CSC, endpoints and permutations in int64, and temporary memory to build them.
  constexpr std::int64_t kEdgeBytes = 120;
  const std::int64_t needed = topology.num_edges() * kEdgeBytes, available = available_bytes();
  MEZZO_CHECK(needed <= available, "bench: {} edges need about {}, and {} are free",
              topology.num_edges(), format_bytes(needed), format_bytes(available));
  return {topology, std::make_shared<const LibtorchGraph>(topology), std::move(precisions)};
}

Plan copy_u_sum(const Workload& load, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  return graph_plan("copy_u sum", load, sizes, operand_bytes(load, sizes, 2), make_copy_u_sum);
}

Plan u_mul_e_sum(const Workload& load, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  return graph_plan("u_mul_e sum", load, sizes, operand_bytes(load, sizes, 4), make_u_mul_e_sum);
}

Plan u_dot_v(const Workload& load, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  return graph_plan("u_dot_v", load, sizes, operand_bytes(load, sizes, 4), make_u_dot_v);
}

Plan softmax(const Workload& load, std::int64_t heads, Pass pass) {
  const Sizes sizes(load, heads, pass);
  const std::int64_t numbers = sizes.num_edges * heads;
  constexpr std::int64_t kDoubles = 8;  // of the reference, alive at once
  return graph_plan("edge softmax", load, sizes,
                    operand_bytes(load, 2 * numbers, 0) + kDoubles * 8 * numbers, make_softmax);
}

Plan segment_sum(const Workload& load, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  const std::int64_t numbers = sizes.num_edges * width;
  constexpr std::int64_t kDoubles = 3;  // of the reference, alive at once
  return graph_plan("segment sum", load, sizes,
                    operand_bytes(load, numbers, 0) + kDoubles * 8 * numbers, make_segment_sum);
}

}  // namespace mezzo::bench
