#include "mezzo/cli/bench_layers.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/message_passing/ops.h"
#include "mezzo/nn/gat_conv.h"

namespace mezzo::bench {
namespace {

constexpr double kSlope = 0.2;

std::int64_t heads_of(std::int64_t width) {
  constexpr std::int64_t kHeads = 4;
  return width % kHeads == 0 ? kHeads : 1;
}

/// The layer with a row of every tensor for each edge. in: as `parameters_of` after the input.
at::Tensor gather_scatter_layer(const Yardsticks& torch, std::int64_t heads, const Tensors& in) {
  const at::Tensor rows = at::linear(in[0], in[1]).view({in[0].size(0), heads, -1});
  const at::Tensor sent = (rows * in[2]).sum(-1), received = (rows * in[3]).sum(-1);
  const at::Tensor logits = at::leaky_relu(
      sent.index_select(0, torch.src()) + received.index_select(0, torch.dst()), kSlope);
  return torch.gather_scatter(rows, torch.gather_softmax(logits).unsqueeze(-1));
}

Comparison make_gat_layer(const Workload& load, std::int64_t width, Pass pass,
                          std::int64_t messages_bytes) {
  const std::int64_t heads = heads_of(width);
  nn::GATConv layer(nn::GATConvOptions{.in_features = width,
                                       .out_features = width / heads,
                                       .num_heads = heads,
                                       .negative_slope = kSlope,
                                       .bias = false,
                                       .allow_zero_in_degree = true});
  const at::Tensor x = at::randn({load.topology.num_src(), width});
  const at::Tensor gradient = at::randn({load.topology.num_dst(), heads, width / heads});
  const auto operands = [&layer](const at::Tensor& input) -> Tensors {
    return {input, layer->fc->weight, layer->attn_l, layer->attn_r};
  };
  const auto guarded = [pass](Forward forward) -> Forward {
    if (pass == Pass::kForwardBackward) return forward;
    return [forward = std::move(forward)](const Tensors& in) {
      const at::NoGradGuard no_grad;
      return forward(in);
    };
  };

  const auto arrange = [](Tensors results) {
    results.resize(std::min<std::size_t>(results.size(), 3));
    return results;
  };

  Comparison made;
  const std::int64_t rows_bytes = 4 * x.numel() * kFloatBytes;
  const std::int64_t copies = pass == Pass::kForwardBackward ? 5 : 2;  // of E x F, alive at once
  made.contenders.push_back(
      {.name = "gather-scatter",
       .run = job(pass, operands(x), gradient, guarded([torch = load.torch, heads](const auto& in) {
                    return gather_scatter_layer(*torch, heads, in);
                  })),
       .arrange = arrange,
       .run_bytes = copies * messages_bytes + rows_bytes});
  for (const amp::Precision precision : load.precisions) {
    const at::ScalarType type = storage_type(precision);
    const auto forward = [topology = load.topology, layer, precision](const Tensors& in) mutable {
      const amp::PrecisionScope scope(precision, at::kCPU);
      return layer(topology, in[0]);
    };
    made.contenders.push_back(
        {.name = "mezzo " + std::string(amp::to_string(precision)),
         .ours = true,
         .precision = precision,
         .run = job(pass, operands(x.to(type)), gradient.to(type), guarded(forward)),
         .arrange = arrange,
         .run_bytes = rows_bytes});
  }
  return made;
}

/// float64 results of a product and its gradients, in float32.
std::vector<Expected> expected_product(Pass pass, const at::Tensor& x, const at::Tensor& weight,
                                       const at::Tensor& gradient) {
  const at::Tensor wide_x = x.to(at::kDouble), wide_weight = weight.to(at::kDouble);
  std::vector<Expected> expected = {{wide_x.mm(wide_weight.t()).to(at::kFloat)}};
  if (pass == Pass::kForwardBackward) {
    const at::Tensor wide_gradient = gradient.to(at::kDouble);
    expected.push_back({wide_gradient.mm(wide_weight).to(at::kFloat)});
    expected.push_back({wide_gradient.t().mm(wide_x).to(at::kFloat)});
  }
  return expected;
}

Comparison make_dense_product(const ProductSize& size,
                              const std::vector<amp::Precision>& precisions, Pass pass) {
  const at::Tensor x = at::randn({size.rows, size.in}), weight = at::randn({size.out, size.in});
  const at::Tensor gradient = at::randn({size.rows, size.out});
  const auto cost = [&](std::int64_t element) {
    const std::int64_t back = pass == Pass::kForwardBackward ? size.in : 0;
    return Cost{size.rows * (size.out + back) * element};
  };
  const Forward libtorch = [](const Tensors& in) { return at::linear(in[0], in[1]); };

  Comparison made;
  made.expected = expected_product(pass, x, weight, gradient);
  Contenders list(pass, {x, weight}, gradient);
  list.yardstick("libtorch", libtorch, cost(kFloatBytes));
  for (const amp::Precision precision : precisions) {
    if (storage_type(precision) == at::kFloat) continue;
    list.yardstick("libtorch " + std::string(amp::to_string(precision)), libtorch,
                   cost(element_bytes(precision)), precision);
  }
  list.ours(
      precisions, [](const Tensors& in) { return mezzo::linear(in[0], in[1]); }, cost);
  made.contenders = list.take();
  return made;
}

}  // namespace

Plan gat_layer(const Workload& load, std::int64_t width, Pass pass) {
  const std::int64_t rows = load.topology.num_src() + load.topology.num_dst();
  const std::int64_t messages_bytes = load.topology.num_edges() * width * kFloatBytes;
  return {.work = fmt::format("GAT layer, {} x {}{}", heads_of(width), width / heads_of(width),
                              suffix(pass)),
          .width = width,
          .bytes = 5 * rows * width * kFloatBytes,
          .make = [=] { return make_gat_layer(load, width, pass, messages_bytes); }};
}

Plan dense_product(const ProductSize& size, const std::vector<amp::Precision>& precisions,
                   Pass pass) {
  const std::int64_t numbers = size.rows * (size.in + size.out) + size.in * size.out;
  const auto narrow = std::count_if(precisions.begin(), precisions.end(),
                                    [](auto p) { return storage_type(p) != at::kFloat; });
  const std::int64_t bytes = 8 + 4 + 4 + narrow * (2 + 2);  // float64, and two of every other type
  return {.work = fmt::format("linear {} x {} x {}{}", size.rows, size.in, size.out, suffix(pass)),
          .width = size.out,
          .bytes = numbers * bytes,
          .make = [=] { return make_dense_product(size, precisions, pass); }};
}

}  // namespace mezzo::bench
