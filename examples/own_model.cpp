// A model of your own: trained by mini-batches, computed exactly for all nodes layer by layer, on
// features that stay sparse. argv: data set, epochs.
#include <iostream>
#include <string>

#include <mezzo/mezzo.h>

namespace nn = mezzo::nn;

// [module]
struct EncoderImpl : torch::nn::Module {
  EncoderImpl(int64_t in_features, int64_t hidden, int64_t num_classes) {
    first = register_module("first", nn::SAGEConv(in_features, hidden));
    second = register_module("second", nn::SAGEConv(hidden, num_classes));
  }
  torch::Tensor layer(int64_t index, const mezzo::Topology& g, const torch::Tensor& h) {
    return index == 0 ? torch::relu(first(g, h)) : second(g, h);
  }
  // Takes a graph or blocks. A second overload of forward() would not compile.
  torch::Tensor forward(const nn::ModelInput& input, torch::Tensor h) {
    for (int64_t i = 0; i < 2; ++i) h = layer(i, input.layer(i), h);
    return h;
  }
  nn::SAGEConv first{nullptr}, second{nullptr};
};
TORCH_MODULE(Encoder);
// [module end]

int main(int argc, char** argv) {
  const int epochs = argc > 2 ? std::stoi(argv[2]) : 20;
  const torch::Device device = mezzo::default_device();
  const mezzo::Dataset data = mezzo::load_dataset(argv[1]);
  const mezzo::Graph g = mezzo::Graph::from_dataset(data, 0, mezzo::SparseFeatures::kKeep);
  const torch::Tensor x = g.ndata()["feat"];

  torch::manual_seed(0);
  // [use]
  Encoder model(x.size(1), 64, data.num_classes);
  model->to(device);
  torch::optim::Adam optimizer(model->parameters(), 0.01);
  mezzo::BlockLoader loader(g, g.ndata()["train_mask"],
                            {.fanouts = {10, 10},
                             .batch_size = 64,
                             .shuffle = true,
                             .features = {"feat"},
                             .labels = {"label"},
                             .device = device});
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (const mezzo::Batch& batch : loader) {
      const torch::Tensor logits = model(batch.blocks, batch.features("feat"));
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(logits, batch.labels("label")).backward();
      optimizer.step();
    }
  }
  const auto layer = [&](int64_t index, const mezzo::Topology& block, const torch::Tensor& h) {
    return model->layer(index, block, h);
  };
  const torch::Tensor logits =
      mezzo::inference(*model, 2, layer, g, x, {.batch_size = 1024, .device = device});
  // [use end]
  const torch::NoGradGuard no_grad;
  const torch::Tensor whole = model(g.to(device), x.to(device)).cpu();
  std::cout << (torch::allclose(logits, whole, 1e-3, 1e-4) ? "layers agree with the whole graph\n"
                                                           : "layers differ\n")
            << "test accuracy "
            << mezzo::accuracy(logits, g.ndata()["label"], g.ndata()["test_mask"]) << '\n';
}
