// Finds particle tracks, as tracks.cpp, with an interaction network of your own: blocks that pass
// rows of nodes and of edges on. Prints the test accuracy in each precision.
// usage: own_edge_model [EPOCHS] [EVENTS] [SEED]
#include <cstdlib>
#include <iostream>
#include <string>
#include <tuple>

#include "tracks.h"

namespace nn = mezzo::nn;
using torch::Tensor;

constexpr int64_t kWidth = 32;

// [module]
struct TrackFinderImpl : torch::nn::Module {
  explicit TrackFinderImpl(const mezzo::Dataset& data, int64_t num_blocks = 3) {
    node = register_module("node", torch::nn::Linear(data.num_features(), kWidth));
    edge = register_module("edge", torch::nn::Linear(data.num_edge_features(), kWidth));
    output = register_module("output", torch::nn::Linear(kWidth, data.num_classes));
    for (int64_t i = 0; i < num_blocks; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i), nn::InteractionBlock(kWidth, kWidth)));
    }
  }
  // Returns a row for each edge, since the labels are of edges.
  Tensor forward(const nn::ModelInput& input, const Tensor& x) {
    Tensor h = node(x), e = edge(input.edge_rows());
    for (nn::InteractionBlock& block : blocks) std::tie(h, e) = block(*input.topology(), h, e);
    return output(e);
  }
  torch::nn::Linear node{nullptr}, edge{nullptr}, output{nullptr};
  std::vector<nn::InteractionBlock> blocks;
};
TORCH_MODULE(TrackFinder);
// [module end]

int main(int argc, char** argv) {
  const uint64_t seed = argc > 3 ? std::stoull(argv[3]) : 0;
  torch::manual_seed(seed);
  const mezzo::Dataset data = tracks::simulate(argc > 2 ? std::atoi(argv[2]) : 50);
  mezzo::TrainOptions options{
      .epochs = argc > 1 ? std::atoi(argv[1]) : 60, .weight_decay = 0, .seed = seed};
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    torch::manual_seed(seed);  // for equal weights
    options.precision = mezzo::amp::parse_precision(precision);
    const double accuracy = mezzo::train(data, TrackFinder(data), options).best.test;
    std::cout << precision << " test accuracy " << accuracy << '\n';
  }
}
