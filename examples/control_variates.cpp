// Trains with two neighbours a node and the control variate of VR-GCN: the mean over all neighbours
// is estimated from their stored activations and corrected by the drawn neighbours.
// usage: control_variates DATA [EPOCHS]
#include <iostream>
#include <string>
#include <vector>

#include <mezzo/mezzo.h>

namespace fn = mezzo::fn;

struct MeanGCNImpl : torch::nn::Module {
  MeanGCNImpl(int64_t in_features, int64_t hidden, int64_t num_classes) {
    layers = {register_module("layer0", torch::nn::Linear(in_features, hidden)),
              register_module("layer1", torch::nn::Linear(hidden, num_classes))};
  }
  torch::Tensor update(std::size_t layer, const torch::Tensor& mean) {
    const torch::Tensor h = layers[layer](torch::dropout(mean, 0.5, is_training()));
    return layer == 0 ? torch::relu(h) : h;
  }
  // Returns the logits of the seeds and writes the activations of layer 1 to `hidden`.
  torch::Tensor forward(mezzo::NodeFlow& nf, mezzo::ControlVariate& variate,
                        torch::Tensor& hidden) {
    hidden = update(0, variate.mean(nf, 0, nf.layers(0).data()["feat"]));
    return update(1, variate.mean(nf, 1, hidden));
  }
  // The same on the whole graph.
  torch::Tensor whole(mezzo::Graph g) {
    g.ndata()["h"] = g.ndata()["feat"];
    for (std::size_t i = 0; i < layers.size(); ++i) {
      g.update_all(fn::copy_u("h", "m"), fn::mean("m", "h"));
      g.ndata()["h"] = update(i, g.ndata()["h"]);
    }
    return g.ndata()["h"];
  }
  std::vector<torch::nn::Linear> layers;
};
TORCH_MODULE(MeanGCN);

int main(int argc, char** argv) {
  const int epochs = argc > 2 ? std::stoi(argv[2]) : 40;
  constexpr int64_t kHidden = 64;
  const mezzo::Dataset data = mezzo::load_dataset(argv[1]);
  const mezzo::Graph g = mezzo::add_self_loop(mezzo::Graph::from_dataset(data));
  const torch::Tensor feat = g.ndata()["feat"], labels = g.ndata()["label"];

  mezzo::NeighborSampler sampler(g, g.ndata()["train_mask"],
                                 {.batch_size = 32,
                                  .num_neighbors = 2,
                                  .num_hops = 2,
                                  .shuffle = true,
                                  .num_workers = 1,
                                  .seed = 0});
  mezzo::ControlVariate variate(g, {.widths = {feat.size(1), kHidden}});
  variate.set_history(0, feat);  // the features do not change: their means are exact

  torch::manual_seed(0);
  MeanGCN model(feat.size(1), kHidden, data.num_classes);
  torch::optim::Adam optimizer(model->parameters(),
                               torch::optim::AdamOptions(0.01).weight_decay(5e-4));
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (mezzo::NodeFlow& nf : sampler) {
      nf.copy_from_parent(mezzo::NodeFlow::ColumnsByLayer{.nodes = {{"feat"}, {}, {}}});
      torch::Tensor hidden;
      optimizer.zero_grad();
      const torch::Tensor loss = torch::nn::functional::cross_entropy(
          model(nf, variate, hidden), labels.index_select(0, nf.layer_parent_nid(-1)));
      loss.backward();
      optimizer.step();
      variate.update(nf, 1, hidden);
    }
  }
  model->eval();
  const torch::NoGradGuard no_grad;
  std::cout << "test accuracy "
            << mezzo::accuracy(model->whole(g.local_var()), labels, g.ndata()["test_mask"]) << '\n';
}
