// Classifies point clouds as spheres or cubes, by a graph of the nearest neighbours of each point
// (EdgeConv, Wang et al., 2019). Prints the loss of every tenth step, then "test accuracy".
// usage: points [STEPS]
#include <cstdlib>
#include <iostream>

#include <mezzo/mezzo.h>

namespace nn = mezzo::nn;

constexpr int64_t kClouds = 32, kPoints = 128;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", nn::EdgeConv(3, 32));
    second = register_module("second", nn::EdgeConv(32, 64));
    output = register_module("output", torch::nn::Linear(64, 2));
  }
  torch::Tensor forward(const mezzo::Graph& g, const torch::Tensor& x) {
    return output(nn::max_nodes(g, torch::relu(second(g, torch::relu(first(g, x))))));
  }
  nn::EdgeConv first{nullptr}, second{nullptr};
  torch::nn::Linear output{nullptr};
};
TORCH_MODULE(Net);

// Points on kClouds surfaces, one cloud after another; label 1 is a sphere, 0 a cube.
static std::pair<torch::Tensor, torch::Tensor> draw_clouds() {
  const torch::Tensor label = torch::randint(2, {kClouds}, torch::kLong);
  const torch::Tensor x = torch::rand({kClouds, kPoints, 3}) * 2 - 1;
  const torch::Tensor sphere = x / x.norm(2, -1, true);
  const torch::Tensor cube = x / x.abs().amax(-1, true);
  return {torch::where(label.view({-1, 1, 1}) == 1, sphere, cube).flatten(0, 1), label};
}

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoi(argv[1]) : 40;
  torch::manual_seed(0);
  Net net;
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
  // [graph]
  const torch::Tensor sizes = torch::full({kClouds}, kPoints, torch::kLong);
  const auto graph_of = [&](const torch::Tensor& points) {
    return mezzo::knn_graph(points, /*k=*/8, {.batch_num_nodes = sizes});
  };
  // [graph end]
  for (int64_t step = 0; step < steps; ++step) {
    const auto [points, label] = draw_clouds();
    const torch::Tensor loss = torch::cross_entropy_loss(net(graph_of(points), points), label);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    if (step % 10 == 0) std::cout << "step " << step << " loss " << loss.item<float>() << '\n';
  }
  const auto [points, label] = draw_clouds();
  const torch::Tensor right = net(graph_of(points), points).argmax(1) == label;
  std::cout << "test accuracy " << right.to(torch::kFloat).mean().item<float>() << '\n';
}
