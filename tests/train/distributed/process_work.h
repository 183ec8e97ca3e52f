#pragma once

#include <cstdint>
#include <string>

#include <fmt/ranges.h>

#include "mezzo/data/dataset.h"
#include "mezzo/train/trainer.h"

#include "train/link_data.h"
#include "train/mini_batches.h"
#include "train/targets.h"

/// The data and options of training by several processes. A test names the work, and each
/// process (process_work_test.cpp) does it.
namespace mezzo::test {

inline constexpr std::int64_t kJoinedEpochs = 20;
inline constexpr double kJoinedRate = 0.1;
inline constexpr std::int64_t kJoinedNodes = 20;

/// Every step is on all 20 training nodes with all their neighbours, equally many for each process.
/// Plain SGD moves a weight by as much as its gradient says.
inline TrainOptions joined_options(amp::Precision precision, std::int64_t batch_size) {
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.model = nn::ModelKind::kSage;
  options.precision = precision;
  options.sampling->batch_size = batch_size;
  options.sampling->fanouts = {-1, -1};
  options.dropout = 0;
  options.optimizer = OptimizerKind::kSgd;
  options.learning_rate = kJoinedRate;
  // A dynamic one would find another scale: the mean over half of the nodes has larger terms.
  if (precision == amp::Precision::kFloat16) options.loss_scale = parse_loss_scale("1024");
  options.epochs = kJoinedEpochs;
  options.eval_every = 5;
  return options;
}

/// The same on all `rows` targets: the training edges or graphs, or links with their negative
/// pairs.
inline TrainOptions joined_options(const Dataset& data, std::int64_t rows) {
  TrainOptions options = joined_options(amp::Precision::kFloat32, rows);
  if (data.target == TaskTarget::kGraph) options.sampling->fanouts.clear();
  // Batches leave edges out.
  if (data.target == TaskTarget::kLink) options.model = nn::ModelKind::kMlp;
  return options;
}

inline constexpr std::int64_t kTrainingEdges = 72, kTrainingGraphs = 24, kTrainingPairs = 288 + 72;

/// Three batches of 4, 4 and 2 nodes in each of two processes, with everything that is random.
inline TrainOptions random_options() {
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.model = nn::ModelKind::kSage;
  options.sampling->batch_size = 4;
  options.dropout = 0.5;
  options.epochs = 3;
  return options;
}

/// The same on links: 144 for each process.
inline TrainOptions random_options_of_links() {
  TrainOptions options = link_options(nn::Decoder::kDistMult);
  options.sampling = SamplingOptions{.batch_size = 60, .fanouts = {2, 2}};
  options.dropout = 0.5;
  options.epochs = 3;
  return options;
}

/// Suffix of work on links.
inline constexpr auto kOfLinks = "-links";

/// Suffix of work with bfloat16 gradient traffic.
inline constexpr auto kSmallTraffic = "-small";

/// Suffix of work on node_pairs() with batch normalization.
inline constexpr auto kNormalized = "-normalized";

/// two_rings() with other edges: each node has one neighbour, so that no two processes compute the
/// same row.
inline Dataset node_pairs() {
  Dataset data = two_rings();
  data.edge_features.reset();
  data.name = "pairs";
  data.src = at::arange(data.num_nodes);
  data.dst = at::bitwise_xor(data.src, 4);
  data.validate();
  return data;
}

/// Multi-label data without missing entries, so that equally many nodes have equally many.
inline Dataset labelled_rings() {
  Dataset data = rings_of_several_labels();
  data.labels.masked_fill_(data.labels.eq(kNoEntry), 0);
  return data;
}

inline std::string summary_of(const TrainReport& report) {
  return fmt::format("losses {} steps {} skipped {} epochs {} world {}", report.losses,
                     report.steps, report.skipped_steps, report.epochs_run, report.world_size);
}

}  // namespace mezzo::test
