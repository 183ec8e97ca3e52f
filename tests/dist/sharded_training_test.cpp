#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/dist/data_parallel.h"
#include "mezzo/dist/sharded_features.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/sampling/blocks/block_loader.h"

#include "dist/processes.h"

/// Training on features that are sharded over the ranks.
namespace mezzo::dist::sharded_training_test {
namespace {

constexpr std::int64_t kNodes = 60, kWidth = 5, kClasses = 3, kSeeds = 24;

/// For workers, because gtest's expectations have no effect there.
void require_equal(bool condition, const std::string& text) {
  if (!condition) throw LogicError("not the same: " + text);
}

std::int64_t drawn(std::uint64_t stream, std::int64_t index, std::int64_t bound) {
  const std::uint64_t bits = random_bits(7, stream, static_cast<std::uint64_t>(index));
  return static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(bound));
}

/// Random edges, features and labels.
Graph random_graph() {
  constexpr std::int64_t kEdges = 5 * kNodes;
  at::Tensor src = at::empty({kEdges}, at::kLong), dst = at::empty({kEdges}, at::kLong);
  for (std::int64_t i = 0; i < kEdges; ++i) {
    src[i] = drawn(0, i, kNodes);
    dst[i] = drawn(1, i, kNodes);
  }
  at::Tensor features = at::empty({kNodes, kWidth});
  for (std::int64_t i = 0; i < kNodes * kWidth; ++i) {
    features.view(-1)[i] = random_uniform(8, 0, static_cast<std::uint64_t>(i)) - 0.5;
  }
  at::Tensor labels = at::empty({kNodes}, at::kLong);
  for (std::int64_t i = 0; i < kNodes; ++i) labels[i] = drawn(2, i, kClasses);
  Graph graph(Topology::from_coo(src, dst, kNodes, kNodes));
  graph.ndata()["feat"] = features;
  graph.ndata()["label"] = labels;
  return graph;
}

/// A model of one rank and its training batches; the same seeds on all ranks.
class Learner {
 public:
  Learner(const Graph& graph, const at::Tensor& seeds, const std::vector<std::string>& columns,
          const ProcessGroup& group)
      : loader_(graph, seeds,
                {.fanouts = {3, 3},
                 .batch_size = 5,
                 .shuffle = true,
                 .features = columns,
                 .labels = {"label"},
                 .seed = 11}),
        group_(group) {
    at::manual_seed(5);
    model_ = nn::Model(kWidth, kClasses,
                       {.kind = nn::ModelKind::kSage, .hidden_features = 8, .dropout = 0});
  }

  BlockLoader& loader() { return loader_; }
  std::vector<at::Tensor> parameters() const { return model_->parameters(); }

  /// Returns this rank's loss; leaves the mean gradients over all ranks in the parameters.
  at::Tensor learn(const Batch& batch, const at::Tensor& features) {
    model_->zero_grad();
    const at::Tensor logits = model_->forward(batch.blocks, features);
    const at::Tensor loss = at::cross_entropy_loss(logits, batch.labels("label"));
    loss.backward();
    all_reduce_gradients(parameters(), group_);
    torch::optim::SGD(parameters(), torch::optim::SGDOptions(0.1)).step();
    return loss.detach();
  }

 private:
  BlockLoader loader_;
  ProcessGroup group_;
  nn::Model model_{nullptr};
};

TEST(ShardedTraining, steps_have_the_bits_of_those_with_features_in_memory) {
  const Graph graph = random_graph();
  const at::Tensor table = graph.ndata().at("feat"), train_nodes = at::arange(kSeeds);
  for (const std::int64_t processes : {2, 3}) {
    mezzo::test::spawn_over_gloo(processes, graph, [&](ProcessGroup& group, const Graph& shared) {
      ::alarm(60);
      at::set_num_threads(1);
      const auto features = ShardedFeatures::from_table(table, group);
      require_equal(features.part().size(0) == kNodes / processes, "an even share");
      const at::Tensor seeds = split(train_nodes, group);
      Learner whole(shared, seeds, {"feat"}, group), sharded(shared, seeds, {}, group);
      const at::Tensor start = sharded.parameters().front().detach().clone();
      for (int epoch = 0; epoch < 2; ++epoch) {
        auto position = sharded.loader().begin();
        std::int64_t batches = 0;
        for (const Batch& batch : whole.loader()) {
          const at::Tensor rows = features.gather(position->input_nodes);
          require_equal(at::equal(rows, batch.features("feat")), "the gathered rows");
          const at::Tensor loss = whole.learn(batch, batch.features("feat"));
          require_equal(at::equal(sharded.learn(*position, rows), loss), "the loss");
          for (std::size_t i = 0; i < whole.parameters().size(); ++i) {
            const at::Tensor a = sharded.parameters()[i], b = whole.parameters()[i];
            require_equal(at::equal(a.grad(), b.grad()), fmt::format("gradient {}", i));
            require_equal(at::equal(a, b), fmt::format("parameter {}", i));
          }
          ++position;
          ++batches;
        }
        require_equal(batches == (kSeeds / processes + 4) / 5, "the number of batches");
      }
      require_equal(!at::equal(sharded.parameters().front(), start), "nothing was learnt");
    });
  }
}

}  // namespace
}  // namespace mezzo::dist::sharded_training_test
