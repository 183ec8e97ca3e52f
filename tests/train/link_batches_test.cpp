// Training on links by mini-batches.
#include <vector>

#include "mezzo/sampling/edges/edge_loader.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "train/link_data.h"
#include "train/mini_batches.h"

namespace mezzo::link_batches_test {
namespace {

using test::link_batches;
using test::link_options;
using test::links_within_groups;

TrainOptions batch_options(nn::Decoder decoder) {
  TrainOptions options = link_options(decoder);
  options.sampling = link_batches();
  options.epochs = 60;
  return options;
}

TEST(LinkBatches, every_decoder_learns_in_each_precision) {
  const Dataset data = links_within_groups(true);
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    for (const nn::Decoder decoder : test::kDecoders) {
      for (const LossKind loss : {LossKind::kAutomatic, LossKind::kMargin}) {
        SCOPED_TRACE(std::string(amp::to_string(precision)) + " " +
                     std::string(name_of(nn::Decoders{}, decoder)));
        TrainOptions options = batch_options(decoder);
        options.precision = precision;
        options.loss = loss;
        const TrainReport report = train(data, options);
        EXPECT_GT(report.best.val, test::kLinksLearnt);
        EXPECT_GT(report.best.test, test::kLinksLearnt);
        EXPECT_EQ(report.steps, 60 * 3);
        EXPECT_EQ(report.sampling->sampler, "neighbor");
      }
    }
  }
}

at::Tensor parameter(const nn::Model& model, const char* name) {
  return model->named_parameters()[name].detach().to(at::kDouble);
}

/// float64 [N, N]: what each node (the row) gives of the mean over its in-edges, without those that
/// join the nodes of a positive pair of the batch in any direction.
at::Tensor mean_matrix(const Problem& problem, const EdgeMiniBatch& batch) {
  const std::int64_t num_nodes = problem.topology.num_src();
  const at::Tensor src = problem.topology.src().to(at::kLong),
                   dst = problem.topology.dst().to(at::kLong);
  const at::Tensor from = batch.output_nodes.index_select(0, batch.positives.src),
                   to = batch.output_nodes.index_select(0, batch.positives.dst);
  const at::Tensor keys = at::cat({from * num_nodes + to, to * num_nodes + from});
  const at::Tensor kept = at::isin(src * num_nodes + dst, keys).logical_not().to(at::kDouble);
  const auto sums = [&](const at::Tensor& numbers) {
    const at::Tensor items = at::zeros({num_nodes * num_nodes}, at::kDouble);
    return items.index_add_(0, dst * num_nodes + src, numbers).view({num_nodes, num_nodes});
  };
  const at::Tensor weights =
      problem.edge_rows.defined() ? problem.edge_rows.to(at::kDouble) * kept : kept;
  return sums(weights) / sums(kept).sum(1, /*keepdim=*/true).clamp_min(1);
}

/// The sums of the losses of the pairs of a batch, and of the magnitudes that they are computed
/// from.
struct BatchSums {
  double loss = 0, size = 0;
};

/// One layer of sage, dot products, and binary cross entropy, in float64.
BatchSums sums_of(const nn::Model& model, const Problem& problem, const EdgeMiniBatch& batch) {
  const at::Tensor mean = mean_matrix(problem, batch), x = problem.features.to(at::kDouble);
  const at::Tensor own = parameter(model, "layer0.fc_self.weight").t(),
                   received = parameter(model, "layer0.fc_neigh.weight").t(),
                   bias = parameter(model, "layer0.fc_self.bias");
  const at::Tensor rows = mean.mm(x).mm(received) + x.mm(own) + bias;
  const at::Tensor sizes = mean.mm(x.abs()).mm(received.abs()) + x.abs().mm(own.abs()) + bias.abs();
  BatchSums sums;
  const auto add = [&](const NodePairs& pairs, double sign) {
    const auto products = [&](const at::Tensor& of_nodes) {
      const at::Tensor nodes = of_nodes.index_select(0, batch.output_nodes);
      return (nodes.index_select(0, pairs.src) * nodes.index_select(0, pairs.dst)).sum(1);
    };
    const at::Tensor losses = at::softplus(products(rows) * sign);
    sums.loss += losses.sum().item<double>();
    sums.size += (losses + products(sizes)).sum().item<double>();
  };
  add(batch.positives, -1);
  add(batch.negatives, 1);
  return sums;
}

/// The batches of the first epoch of a run.
std::vector<EdgeMiniBatch> first_epoch(const Problem& problem, const TrainOptions& options) {
  const at::Tensor links = problem.masks.train.logical_and(problem.labels.select(1, 0));
  const Graph graph(problem.topology);
  EdgeLoader loader(graph, problem.head_targets.edges, links.nonzero().squeeze(1),
                    {.fanouts = {kAllNeighbors},
                     .batch_size = *options.sampling->batch_size,
                     .shuffle = true,
                     .negatives = {.exclude_loops = true},
                     .seed = options.seed});
  std::vector<EdgeMiniBatch> batches;
  for (const EdgeMiniBatch& batch : loader) batches.push_back(batch);
  return batches;
}

TEST(LinkBatches, the_loss_is_that_of_the_definition) {
  Dataset data = links_within_groups(false);
  data.features = at::eye(data.num_nodes);
  for (const bool has_weights : {false, true}) {
    if (has_weights) data.edge_weights = 1 + at::arange(data.num_edges()).remainder(7) / 4.0F;
    TrainOptions options = link_options(nn::Decoder::kDot);
    options.layers = 1;
    options.hidden.reset();
    options.epochs = 1;
    options.optimizer = OptimizerKind::kSgd;
    options.learning_rate = 1e-37;  // the weights stay as they are
    options.sampling = SamplingOptions{.batch_size = 100, .fanouts = {kAllNeighbors}};
    const Problem problem = make_problem(data, options);
    at::manual_seed(options.seed);
    const nn::Model model(model_options(options, problem));
    BatchSums all;
    std::int64_t pairs = 0;
    for (const EdgeMiniBatch& batch : first_epoch(problem, options)) {
      const BatchSums sums = sums_of(model, problem, batch);
      all.loss += sums.loss;
      all.size += sums.size;
      pairs += batch.pairs.num_edges();
    }
    ASSERT_EQ(pairs, 2 * 288);
    const auto number = [](double value) { return at::full({1}, value, at::kDouble); };
    const auto count = static_cast<double>(pairs);
    const at::Tensor got = number(train(data, options).losses[0]).to(at::kFloat);
    // Two rows from sums over 60 nodes and neighbours, 16 products, and a mean over 200 pairs.
    const double terms = 2 * (60 + 60 + 2) + 16 + 200;
    EXPECT_TRUE(test::near(got, number(all.loss / count),
                           test::sum_bound(number(all.size / count), terms, at::kFloat)));
  }
}

TEST(LinkBatches, threads_and_workers_change_nothing) {
  const Dataset data = links_within_groups(true);
  TrainOptions options = batch_options(nn::Decoder::kComplEx);
  options.epochs = 4;
  options.dropout = 0.5;
  options.sampling->num_workers = 0;
  const TrainReport alone = train(data, options);
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  EXPECT_EQ(train(data, options).losses, alone.losses);
  at::set_num_threads(threads);
  for (const std::int64_t workers : {1, 2}) {
    options.sampling->num_workers = workers;
    const TrainReport report = train(data, options);
    EXPECT_EQ(report.losses, alone.losses);
    EXPECT_EQ(report.last.test, alone.last.test);
  }
  options.sampling->shuffle = false;
  EXPECT_NE(train(data, options).losses, alone.losses);
}

TEST(LinkBatches, the_scores_of_an_evaluation_in_batches_are_those_of_the_full_graph) {
  Dataset data = test::links_of_bits();
  TrainedModel trained = test::model_of_integers(data, nn::Decoder::kDistMult);
  const at::Tensor logits = trained.logits(data);
  EXPECT_TRUE(at::equal(logits, logits.round()));
  for (const Metric metric : {Metric::kRocAuc, Metric::kAveragePrecision, Metric::kMicroF1,
                              Metric::kMrr, Metric::kRawMrr, Metric::kHitsAt10}) {
    SCOPED_TRACE(metric_name(metric));
    data.metric = metric;
    trained.options.sampling.reset();
    const Scores whole = evaluate(data, trained);
    EXPECT_GT(whole.val, 0);
    for (const std::int64_t nodes : {1, 7, 4096}) {
      trained.options.sampling = SamplingOptions{
          .batch_size = 8, .fanouts = {kAllNeighbors}, .inference_batch_size = nodes};
      const Scores scores = evaluate(data, trained);
      EXPECT_EQ(scores.val, whole.val);
      EXPECT_EQ(scores.test, whole.test);
      EXPECT_TRUE(at::equal(trained.logits(data), logits));
    }
  }
}

TEST(LinkBatches, a_run_is_measured_by_every_metric) {
  Dataset data = links_within_groups(true);
  TrainOptions options = batch_options(nn::Decoder::kDistMult);
  for (const Metric metric : {Metric::kMrr, Metric::kHitsAt10}) {
    data.metric = metric;
    const test::TempFolder folder;
    options.checkpoint = folder.path("c");
    const TrainReport report = train(data, options);
    const Scores again = evaluate(data, load_checkpoint(options.checkpoint));
    EXPECT_EQ(again.val, report.best.val);
    EXPECT_EQ(again.test, report.best.test);
    // Ten of 60 nodes look alike, so 1 / rank cannot be large.
    EXPECT_GT(report.best.test, metric == Metric::kMrr ? 0.12 : 0.7);
  }
}

TEST(LinkBatches, every_model_trains) {
  for (const nn::ModelKind model :
       {nn::ModelKind::kGcn, nn::ModelKind::kGat, nn::ModelKind::kGin, nn::ModelKind::kMlp}) {
    TrainOptions options = batch_options(nn::Decoder::kDot);
    options.model = model;
    if (model == nn::ModelKind::kGat) options.heads = 2;
    EXPECT_GT(train(links_within_groups(false), options).best.test, test::kLinksLearnt)
        << nn::to_string(model);
  }
}

TEST(LinkBatches, options_that_contradict_links_are_errors) {
  const auto expect_refused = [](const std::vector<std::string>& fragments, const auto& change) {
    TrainOptions options = batch_options(nn::Decoder::kDot);
    change(options);
    EXPECT_THROWS(InvalidArgument, fragments, train(links_within_groups(false), options));
  };
  expect_refused({"sampler", "labels of links", "cluster"}, [](TrainOptions& options) {
    options.sampling = SamplingOptions{.sampler = SamplerKind::kCluster, .parts = 2};
  });
  expect_refused({"balance-classes", "labels of links"},
                 [](TrainOptions& options) { options.sampling->balance_classes = true; });
  expect_refused({"fanout", "requires"},
                 [](TrainOptions& options) { options.sampling->fanouts.clear(); });
  expect_refused({"drop-last", "training links", "288"}, [](TrainOptions& options) {
    options.sampling->batch_size = 289;
    options.sampling->drop_last = true;
  });
}

}  // namespace
}  // namespace mezzo::link_batches_test
