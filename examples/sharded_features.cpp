// Trains by mini-batches in several processes. Each process holds a part of the features and gets
// the others through the process group. usage: sharded_features DATA [EPOCHS] [PROCESSES]
#include <iostream>
#include <string>

#include <mezzo/mezzo.h>

namespace dist = mezzo::dist;
namespace nn = mezzo::nn;

/// This rank's share of the nodes in the column `mask`, in batches without features. Every rank has
/// the same number of batches because gathering features is collective.
static mezzo::BlockLoader batches_of(const mezzo::Graph& g, const std::string& mask, int64_t fanout,
                                     const dist::ProcessGroup& group) {
  const torch::Tensor nodes = g.ndata()[mask].nonzero().squeeze(1);
  return {g,
          dist::split(nodes, group),
          {.fanouts = {fanout, fanout},
           .batch_size = 35,
           .shuffle = true,
           .labels = {"label"},
           .device = group.device()}};
}

static void train(nn::Model& model, const mezzo::Graph& g, const dist::ShardedFeatures& features,
                  const dist::ProcessGroup& group, int epochs) {
  torch::optim::Adam optimizer(model->parameters(), 0.01);
  mezzo::BlockLoader loader = batches_of(g, "train_mask", 10, group);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    // [step]
    for (const mezzo::Batch& batch : loader) {
      const torch::Tensor x = features.gather(batch.input_nodes);
      const torch::Tensor logits = model(batch.blocks, x);
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(logits, batch.labels("label")).backward();
      dist::all_reduce_gradients(model->parameters(), group);
      optimizer.step();
    }
    // [step end]
  }
}

static dist::Correct test(nn::Model& model, const mezzo::Graph& g,
                          const dist::ShardedFeatures& features, const dist::ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  model->eval();
  dist::Correct own;
  mezzo::BlockLoader loader = batches_of(g, "test_mask", mezzo::kAllNeighbors, group);
  for (const mezzo::Batch& batch : loader) {
    const torch::Tensor x = features.gather(batch.input_nodes);
    const torch::Tensor classes = model(batch.blocks, x).argmax(1);
    own.correct += classes.eq(batch.labels("label")).sum().item<int64_t>();
    own.count += classes.numel();
  }
  return dist::sum_over_ranks(own, group);
}

int main(int argc, char** argv) {
  const int epochs = argc > 2 ? std::stoi(argv[2]) : 30;
  const int processes = argc > 3 ? std::stoi(argv[3]) : 2;
  const mezzo::Dataset data = mezzo::load_dataset(argv[1]);
  mezzo::Graph g = mezzo::Graph::from_dataset(data);
  const torch::Tensor table = g.ndata().pop("feat");

  dist::spawn(processes, g, [&](dist::ProcessGroup& group, const mezzo::Graph& shared) {
    // This rank's rows only; the table joins the rows of all ranks by rank.
    const int64_t rank = group.rank(), ranks = group.world_size(), n = table.size(0);
    const torch::Tensor own = table.slice(0, n * rank / ranks, n * (rank + 1) / ranks);
    const auto features = dist::ShardedFeatures::from_part(own.to(group.device()), group);
    torch::manual_seed(group.rank());  // dropout differs on each rank
    nn::Model model(nn::ModelOptions{.kind = nn::ModelKind::kSage,
                                     .in_features = table.size(1),
                                     .hidden_features = 64,
                                     .out_features = data.num_classes,
                                     .dropout = 0.5});
    model->to(group.device());
    dist::broadcast_parameters(*model, group);
    train(model, shared, features, group, epochs);
    const dist::Correct correct = test(model, shared, features, group);
    if (group.rank() == 0) std::cout << "test accuracy " << correct.share() << '\n';
  });
}
