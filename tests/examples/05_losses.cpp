// The training of examples/05_multi_process.cpp, which prints no loss, with a criterion that keeps
// it. Prints the largest loss that a rank has in its last batch. argv: data set, epochs, processes.
#include <iostream>
#include <string>

#include <mezzo/mezzo.h>

namespace torch::nn {

/// CrossEntropyLoss that keeps its last value.
struct KeptLoss {
  static inline double latest = -1;

  torch::Tensor operator()(const torch::Tensor& logits, const torch::Tensor& labels) {
    torch::Tensor loss = criterion(logits, labels);
    latest = loss.item<double>();
    return loss;
  }

  CrossEntropyLoss criterion;
};

}  // namespace torch::nn

// Only a function of the name `main` may end without a return; this one is never called.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wreturn-type"
#define CrossEntropyLoss KeptLoss
#define main example_main
#include "05_multi_process.cpp"
#undef main
#undef CrossEntropyLoss
#pragma GCC diagnostic pop

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int epochs = std::stoi(argv[2]), processes = std::stoi(argv[3]);
  const mezzo::Dataset data = mezzo::load_dataset(argv[1]);
  const mezzo::Graph g = mezzo::add_self_loop(mezzo::Graph::from_dataset(data));
  dist::spawn(processes, g, [&](dist::ProcessGroup& group, const mezzo::Graph& shared) {
    train(group, shared, data.num_classes, epochs);
    const double largest = group.all_reduce(torch::nn::KeptLoss::latest, dist::ReduceOp::kMax);
    if (group.rank() == 0) std::cout << "largest loss " << largest << '\n';
  });
}
