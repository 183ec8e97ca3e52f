// Trains a module of your own by mini-batches and on the full graph, reads it from its checkpoint,
// and computes all nodes layer by layer. usage: own_model DATA [EPOCHS] [CHECKPOINT TO WRITE]
#include <iostream>
#include <string>

#include <mezzo/mezzo.h>

namespace nn = mezzo::nn;

// [module]
struct EncoderImpl : torch::nn::Module {
  EncoderImpl(int64_t in_features, int64_t hidden, int64_t num_classes) {
    first = register_module("first", nn::SAGEConv(in_features, hidden));
    second = register_module("second", nn::SAGEConv(hidden, num_classes));
    dropout = register_module("dropout", torch::nn::Dropout(0.5));
  }
  int64_t num_layers() const { return 2; }
  // Layer `index` with all that follows it. g: the whole graph, or the block of this layer.
  torch::Tensor forward_layer(int64_t index, const mezzo::Topology& g, const torch::Tensor& h) {
    return index == 0 ? dropout(torch::relu(first(g, h))) : second(g, h);
  }
  nn::SAGEConv first{nullptr}, second{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Encoder);
// [module end]

int main(int argc, char** argv) {
  const int epochs = argc > 2 ? std::stoi(argv[2]) : 20;
  const std::string path = argc > 3 ? argv[3] : "own.pt";
  const mezzo::Dataset data = mezzo::load_dataset(argv[1]);

  torch::manual_seed(0);
  // [use]
  mezzo::TrainOptions options{
      .epochs = epochs, .device = mezzo::default_device(), .checkpoint = path};
  options.sampling = mezzo::SamplingOptions{.batch_size = 64, .fanouts = {10, 10}};
  Encoder encoder(data.num_features(), 64, data.num_classes);
  mezzo::train(data, encoder, options);
  options.sampling.reset();  // goes on with the weights so far, on the full graph
  const mezzo::TrainResult run = mezzo::train(data, encoder, options);

  Encoder saved(data.num_features(), 64, data.num_classes);
  const mezzo::TrainedModel trained = mezzo::load_checkpoint(path, saved);
  const torch::Tensor logits = trained.logits(data);  // of all nodes
  // [use end]
  const torch::Tensor by_layers =
      mezzo::inference(saved, mezzo::topology_of(data), data.features, {.batch_size = 1024});
  std::cout << (torch::allclose(logits, by_layers, 1e-3, 1e-4)
                    ? "layers agree with the whole graph\n"
                    : "layers differ\n")
            << "test accuracy " << run.best.test << '\n';
}
