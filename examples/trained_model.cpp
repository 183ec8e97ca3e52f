// Trains GraphSAGE, reads the model from its checkpoint and predicts the classes of nodes.
// usage: trained_model DATA [CHECKPOINT TO WRITE]
#include <iostream>
#include <string>

#include <mezzo/mezzo.h>

namespace nn = mezzo::nn;

int main(int argc, char** argv) {
  const std::string path = argc > 2 ? argv[2] : "sage.pt";
  // [trained]
  const mezzo::Dataset data = mezzo::load_dataset(argv[1]);
  const mezzo::TrainResult run =
      mezzo::train(data, {.model = nn::ModelKind::kSage, .hidden = 64, .checkpoint = path});
  std::cout << "test accuracy " << run.best.test << " in epoch " << run.best_epoch << '\n';
  const mezzo::TrainedModel saved = mezzo::load_checkpoint(path);  // or run.trained
  const torch::Tensor classes = saved.logits(data).argmax(1);      // of all nodes
  const torch::Tensor some = saved.logits(data, torch::tensor({3, 14})).argmax(1);
  // [trained end]
  const bool agree = torch::equal(some, classes.index_select(0, torch::tensor({3, 14})));
  std::cout << (agree ? "agree" : "differ") << '\n';
}
