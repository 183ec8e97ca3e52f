#include "bench/cases/kernels.h"

#include <optional>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/ops.h"
#include "mezzo/message_passing/segment.h"
#include "mezzo/train/table.h"

#include "bench/cases/sizes.h"
#include "bench/harness/machine.h"

namespace mezzo::bench {
namespace {

Comparison make_copy_u_sum(const Workload& load, const Sizes& sizes) {
  const auto torch = load.torch;
  const at::Tensor x = at::randn({sizes.num_src, sizes.width});
  const at::Tensor gradient = at::randn({sizes.num_dst, sizes.width});
  const at::Tensor ones = at::ones({sizes.num_edges});
  const at::Tensor matrix = torch->matrix(ones), transposed = torch->transpose(ones);
  const auto cost = [&](std::int64_t size, std::int64_t more) {
    return Cost{sizes.nodes(size) + more, sizes.sum(size, false) * (sizes.backward() ? 2 : 1)};
  };

  Comparison comparison;
  comparison.expected = {{reference_sum(*torch, x, ones)}};
  if (sizes.backward())
    comparison.expected.push_back({reference_transposed_sum(*torch, gradient, ones)});
  Candidates list(sizes.pass, {x}, gradient);
  if (sizes.backward()) {
    list.add_handwritten(
        "cached transpose",
        [=]() -> Tensors {
          return {matrix.mm(x), transposed.mm(gradient)};
        },
        cost(4, 0));
  }
  list.add_baseline(
      sizes.backward() ? "CSR autograd" : "CSR mm",
      [matrix](const Tensors& in) { return at::mm(matrix, in[0]); }, cost(4, sizes.sorting()));
  for_each_type(load, [&](amp::Precision precision) {
    const at::Tensor values = torch->matrix(ones.to(storage_type(precision)));
    list.add_baseline(
        in_type("CSR mm reduce", precision),
        [values](const Tensors& in) { return at::_sparse_mm(values, in[0], "sum"); },
        cost(element_bytes(precision), sizes.sorting()), precision);
  });
  list.add_baseline(
      "gather-scatter", [torch](const Tensors& in) { return torch->gather_scatter(in[0]); },
      {sizes.nodes(4) + sizes.messages() * (sizes.backward() ? 2 : 1) + sizes.sorting()});
  list.add_mezzo(
      load.precisions,
      [topology = load.topology](const Tensors& in) {
        return gspmm(topology, BinaryOp::kCopyLhs, ReduceOp::kSum, in[0], std::nullopt);
      },
      [&](std::int64_t size) { return cost(size, 0); });
  comparison.candidates = list.take();
  return comparison;
}

/// The best that can be written by hand with libtorch: weights in CSR order.
Tensors weighted_by_hand(const LibtorchGraph& torch, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& gradient) {
  const at::Tensor matrix = torch.matrix(weight);
  return {matrix.mm(x), torch.transpose(weight).mm(gradient),
          at::sparse_sampled_addmm(matrix, gradient, x.t(), /*beta=*/0).values()};
}

/// Autograd of the sparse product with a reduction, which gives the weights a sparse gradient.
Tensors weighted_reduce(const LibtorchGraph& torch, const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& gradient) {
  const at::Tensor matrix = torch.matrix(weight).requires_grad_();
  const at::Tensor rows = x.detach().requires_grad_();
  const at::Tensor out = at::_sparse_mm(matrix, rows, "sum");
  out.backward(gradient);
  return {out.detach(), rows.grad(), matrix.grad().values()};
}

void add_weighted_baselines(Candidates& list, const Workload& load, const Sizes& sizes,
                            const Tensors& operands, const at::Tensor& gradient, Cost cost) {
  const auto torch = load.torch;
  const at::Tensor x = operands[0], csr_weights = torch->to_csr_order(operands[1]).squeeze(1);
  const auto with_sorting = [&] {
    return Cost{cost.run_bytes + sizes.sorting(), cost.moved_bytes};
  };
  const auto arrange = [torch](Tensors results) {
    results[2] = torch->to_edge_order(results[2]).unsqueeze(1);
    return results;
  };
  if (sizes.backward()) {
    list.add_handwritten(
        "cached transpose", [=] { return weighted_by_hand(*torch, x, csr_weights, gradient); },
        cost, arrange);
    list.add_unsupported("CSR autograd", "its gradient of the weights is a dense N x N matrix");
    list.add_handwritten(
        "CSR mm reduce", [=] { return weighted_reduce(*torch, x, csr_weights, gradient); },
        with_sorting(), arrange);
  } else {
    list.add_handwritten(
        "CSR mm", [=]() -> Tensors { return {torch->matrix(csr_weights).mm(x)}; }, cost);
    for_each_type(load, [&](amp::Precision precision) {
      const at::Tensor matrix = torch->matrix(csr_weights.to(storage_type(precision)));
      list.add_baseline(
          in_type("CSR mm reduce", precision),
          [matrix](const Tensors& in) { return at::_sparse_mm(matrix, in[0], "sum"); },
          with_sorting(), precision);
    });
  }
  list.add_baseline(
      "gather-scatter", [torch](const Tensors& in) { return torch->gather_scatter(in[0], in[1]); },
      {cost.run_bytes + sizes.messages() * (sizes.backward() ? 4 : 2) + sizes.sorting()});
}

Comparison make_u_mul_e_sum(const Workload& load, const Sizes& sizes) {
  const LibtorchGraph& torch = *load.torch;
  const Tensors operands = {at::randn({sizes.num_src, sizes.width}),
                            at::randn({sizes.num_edges, 1})};
  const at::Tensor gradient = at::randn({sizes.num_dst, sizes.width});
  const auto cost = [&](std::int64_t size) {
    const std::int64_t back = sizes.backward() ? sizes.sum(size, true) + sizes.dot(size) : 0;
    return Cost{sizes.nodes(size) + 2 * sizes.edges(size), sizes.sum(size, true) + back};
  };

  Comparison comparison;
  const at::Tensor csr_weights = torch.to_csr_order(operands[1]).squeeze(1);
  comparison.expected = {{reference_sum(torch, operands[0], csr_weights)}};
  if (sizes.backward()) {
    const std::int64_t stride = checked_edges_stride(sizes.num_edges);
    comparison.expected.push_back({reference_transposed_sum(torch, gradient, csr_weights)});
    comparison.expected.push_back({reference_dot(torch, operands[0], gradient, stride), stride});
  }
  Candidates list(sizes.pass, operands, gradient);
  add_weighted_baselines(list, load, sizes, operands, gradient, cost(4));
  list.add_mezzo(
      load.precisions,
      [topology = load.topology](const Tensors& in) {
        return gspmm(topology, BinaryOp::kMul, ReduceOp::kSum, in[0], in[1]);
      },
      cost);
  comparison.candidates = list.take();
  return comparison;
}

/// The best that can be written by hand with libtorch: dot products, and two sums for the backward.
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
  const auto cost = [&](std::int64_t size) {
    const std::int64_t back = sizes.backward() ? 2 * sizes.sum(size, true) : 0;
    return Cost{sizes.nodes(size) + 2 * sizes.edges(size), sizes.dot(size) + back};
  };

  Comparison comparison;
  const std::int64_t stride = checked_edges_stride(sizes.num_edges);
  comparison.expected = {{reference_dot(*torch, x, y, stride), stride}};
  if (sizes.backward()) {
    comparison.expected.push_back({reference_transposed_sum(*torch, y, csr_weights)});
    comparison.expected.push_back({reference_sum(*torch, x, csr_weights)});
  }
  Candidates list(sizes.pass, {x, y}, gradient);
  list.add_handwritten(
      sizes.backward() ? "sampled_addmm, cached transpose" : "sampled_addmm",
      [=] { return dot_by_hand(*torch, pattern, x, y, csr_weights); }, cost(4),
      [torch](Tensors results) {
        results[0] = torch->to_edge_order(results[0]).unsqueeze(1);
        return results;
      });
  list.add_baseline("gather",
                    [torch](const Tensors& in) { return torch->gather_dot(in[0], in[1]); },
                    {cost(4).run_bytes + sizes.messages() * (sizes.backward() ? 4 : 3)});
  list.add_mezzo(
      load.precisions,
      [topology = load.topology](const Tensors& in) {
        return gsddmm(topology, BinaryOp::kDot, in[0], in[1]);
      },
      cost);
  comparison.candidates = list.take();
  return comparison;
}

Comparison make_softmax(const Workload& load, const Sizes& sizes) {
  const auto torch = load.torch;
  const at::Tensor logits = at::randn({sizes.num_edges, sizes.width});
  const at::Tensor gradient = at::randn({sizes.num_edges, sizes.width});
  const Forward gather = [torch](const Tensors& in) { return torch->gather_softmax(in[0]); };
  const auto cost = [&](std::int64_t size) {
    // Tensors of the edges, once each with the row pointers. Forward: logits read, softmax written;
    // backward: softmax and gradient read, gradient of the logits written.
    const std::int64_t tensors = sizes.backward() ? 5 : 2;
    return Cost{sizes.num_edges * sizes.width * size * 3,
                (sizes.num_edges * sizes.width * size + sizes.num_dst * 8) * tensors};
  };

  Comparison comparison;
  const std::int64_t stride = checked_edges_stride(sizes.num_edges);
  const auto reference =
      job(sizes.pass, {logits.to(at::kDouble)}, gradient.to(at::kDouble), gather);
  for (const at::Tensor& result : reference()) {
    comparison.expected.push_back(every(result.detach().to(at::kFloat), stride));
  }
  Candidates list(sizes.pass, {logits}, gradient);
  list.add_baseline("gather-scatter", gather, {sizes.messages() * 6 + sizes.sorting()});
  list.add_mezzo(
      load.precisions,
      [topology = load.topology](const Tensors& in) { return edge_softmax(topology, in[0]); },
      cost);
  comparison.candidates = list.take();
  return comparison;
}

Comparison make_segment_sum(const Workload& load, const Sizes& sizes) {
  const at::Tensor lengths = load.topology.in_degrees();
  const at::Tensor x = at::randn({sizes.num_edges, sizes.width});
  const at::Tensor gradient = at::randn({sizes.num_dst, sizes.width});
  const Forward libtorch = [lengths](const Tensors& in) {
    return at::segment_reduce(in[0], "sum", lengths, {}, {}, /*axis=*/0, /*unsafe=*/true);
  };
  const auto cost = [&](std::int64_t size) {
    // The rows and the results, once each. Forward: rows read, sums written; backward: gradients of
    // the sums read, those of the rows written.
    const std::int64_t bytes = (sizes.num_edges + sizes.num_dst) * sizes.width * size;
    return Cost{bytes, bytes * (sizes.backward() ? 2 : 1)};
  };

  Comparison comparison;
  const std::int64_t stride = checked_edges_stride(sizes.num_edges);
  const auto reference = job(sizes.pass, {x.to(at::kDouble)}, gradient.to(at::kDouble), libtorch);
  const Tensors results = reference();
  comparison.expected = {{results[0].to(at::kFloat)}};
  if (sizes.backward()) comparison.expected.push_back(every(results[1].to(at::kFloat), stride));
  Candidates list(sizes.pass, {x}, gradient);
  list.add_baseline("segment_reduce", libtorch, cost(4));
  list.add_mezzo(
      load.precisions,
      [lengths](const Tensors& in) {
        return mezzo::segment_reduce(ReduceOp::kSum, lengths, in[0]);
      },
      cost);
  comparison.candidates = list.take();
  return comparison;
}

}  // namespace

Workload make_workload(const Topology& topology, std::vector<amp::Precision> precisions) {
  // Rows by source and by destination, ends and permutations in int64, and what builds them.
  constexpr std::int64_t kEdgeBytes = 120;
  const std::int64_t needed = topology.num_edges() * kEdgeBytes, available = available_bytes();
  MEZZO_CHECK(needed <= available, "bench: {} edges need about {}, and {} are free",
              topology.num_edges(), format_bytes(needed), format_bytes(available));
  return {topology, std::make_shared<const LibtorchGraph>(topology), std::move(precisions)};
}

Plan copy_u_sum(const Workload& load, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  const std::int64_t nodes = sizes.nodes(1);
  return {.work = "copy_u sum" + suffix(pass),
          .width = width,
          .bytes = operand_bytes(load, nodes + 2 * sizes.num_edges, nodes),
          .make = [load, sizes] { return make_copy_u_sum(load, sizes); }};
}

Plan u_mul_e_sum(const Workload& load, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  const std::int64_t nodes = sizes.nodes(1);
  return {.work = "u_mul_e sum" + suffix(pass),
          .width = width,
          .bytes = operand_bytes(load, nodes + 4 * sizes.num_edges, nodes),
          .make = [load, sizes] { return make_u_mul_e_sum(load, sizes); }};
}

Plan u_dot_v(const Workload& load, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  const std::int64_t nodes = sizes.nodes(1);
  return {.work = "u_dot_v" + suffix(pass),
          .width = width,
          .bytes = operand_bytes(load, nodes + 4 * sizes.num_edges, nodes),
          .make = [load, sizes] { return make_u_dot_v(load, sizes); }};
}

Plan softmax(const Workload& load, std::int64_t heads, Pass pass) {
  const Sizes sizes(load, heads, pass);
  const std::int64_t numbers = sizes.num_edges * heads;
  constexpr std::int64_t kDoubles = 8;  // of the reference, alive at once
  return {.work = "edge softmax" + suffix(pass),
          .width = heads,
          .bytes = operand_bytes(load, 2 * numbers, 0) + kDoubles * 8 * numbers,
          .make = [load, sizes] { return make_softmax(load, sizes); }};
}

Plan segment_sum(const Workload& load, std::int64_t width, Pass pass) {
  const Sizes sizes(load, width, pass);
  const std::int64_t numbers = sizes.num_edges * width;
  constexpr std::int64_t kDoubles = 3;  // of the reference, alive at once
  return {.work = "segment sum" + suffix(pass),
          .width = width,
          .bytes = operand_bytes(load, numbers, 0) + kDoubles * 8 * numbers,
          .make = [load, sizes] { return make_segment_sum(load, sizes); }};
}

}  // namespace mezzo::bench
