// Learns a step of the heat equation on a mesh with encoder, processor and decoder (MeshGraphNet,
// Pfaff et al., 2021). Prints the loss of every tenth step, then "test error", relative to no
// change.
#include <cstdlib>
#include <iostream>

#include <mezzo/mezzo.h>

namespace nn = mezzo::nn;

constexpr int64_t kSide = 32, kWidth = 32;

// [net]
struct NetImpl : torch::nn::Module {
  NetImpl() {
    node_encoder = register_module("node_encoder", torch::nn::Linear(1, kWidth));
    edge_encoder = register_module("edge_encoder", torch::nn::Linear(3, kWidth));
    for (int i = 0; i < 2; ++i) blocks->push_back(nn::InteractionBlock(kWidth, kWidth));
    register_module("blocks", blocks);
    decoder = register_module("decoder", torch::nn::Linear(kWidth, 1));
  }
  torch::Tensor forward(const mezzo::Graph& mesh, const torch::Tensor& x, const torch::Tensor& e) {
    torch::Tensor nodes = node_encoder(x), edges = edge_encoder(e);
    for (const auto& block : *blocks) {
      std::tie(nodes, edges) = block->as<nn::InteractionBlock>()->forward(mesh, nodes, edges);
    }
    return decoder(nodes);
  }
  torch::nn::Linear node_encoder{nullptr}, edge_encoder{nullptr}, decoder{nullptr};
  torch::nn::ModuleList blocks;
};
TORCH_MODULE(Net);
// [net end]

// A smooth temperature of each point: a sum of waves.
static torch::Tensor draw_heat(const torch::Tensor& points) {
  const torch::Tensor waves = torch::randn({2, 8}) * 6, phase = torch::rand({8}) * 6;
  return torch::sin(torch::matmul(points, waves) + phase).mean(1, true) * 2;
}

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoi(argv[1]) : 60;
  torch::manual_seed(0);
  const torch::Tensor points = torch::rand({kSide * kSide, 2});
  const mezzo::Graph mesh = mezzo::knn_graph(points, /*k=*/6);
  const torch::Tensor src = mesh.topology().src(), dst = mesh.topology().dst();
  const torch::Tensor along = (points.index_select(0, src) - points.index_select(0, dst)) * kSide;
  const torch::Tensor edges = torch::cat({along, along.norm(2, -1, true)}, 1);
  // An explicit step of the heat equation: the neighbours' differences, nearer ones more.
  const torch::Tensor conductance = 0.25 / (1 + edges.narrow(1, 2, 1));
  const auto change = [&](const torch::Tensor& heat) {
    const auto flow = mezzo::gsddmm(mesh.topology(), mezzo::BinaryOp::kSub, heat, heat,
                                    mezzo::Target::kSrc, mezzo::Target::kDst);
    return mezzo::gspmm(mesh.topology(), mezzo::BinaryOp::kCopyRhs, mezzo::ReduceOp::kSum,
                        std::nullopt, flow * conductance);
  };
  Net net;
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.005));
  for (int64_t step = 0; step < steps; ++step) {
    const torch::Tensor heat = draw_heat(points);
    torch::Tensor predicted;
    {
      const mezzo::amp::Autocast region(torch::kCPU, torch::kBFloat16);
      predicted = net(mesh, heat, edges);
    }
    const torch::Tensor loss = torch::mse_loss(predicted.to(torch::kFloat), change(heat));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 10 == 0) std::cout << "step " << step << " loss " << loss.item<float>() << '\n';
  }
  const torch::NoGradGuard no_grad;
  const torch::Tensor heat = draw_heat(points), target = change(heat);
  const torch::Tensor error = (net(mesh, heat, edges) - target).norm() / target.norm();
  std::cout << "test error " << error.item<float>() << '\n';
}
