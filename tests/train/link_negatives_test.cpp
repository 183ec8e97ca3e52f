// Links whose negative pairs the data fix.
#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>

#include "mezzo/train/problem.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/link_data.h"

namespace mezzo::link_negatives_test {
namespace {

/// Pairs of nodes with types, int64 [n] each.
struct Pairs {
  at::Tensor src, dst, types;
};

Pairs links_in(const Dataset& data, const at::Tensor& masks) {
  const at::Tensor ids = masks.squeeze(1).nonzero().squeeze(1);
  return {.src = data.src.index_select(0, ids),
          .dst = data.dst.index_select(0, ids),
          .types = data.edge_types.index_select(0, ids)};
}

/// pairs: [2, M], for links_in() of a mask.
Pairs typed(const at::Tensor& pairs, const Pairs& links) {
  std::vector<std::int64_t> link;
  for (std::int64_t j = 0; j < pairs.size(1); ++j) {
    link.push_back(j * links.src.numel() / pairs.size(1));
  }
  return {.src = pairs[0],
          .dst = pairs[1],
          .types = links.types.index_select(0, at::tensor(link, at::kLong))};
}

/// The scores of a model: its logits on the data with these edges too, which carry no messages.
std::vector<double> scores_of(const TrainedModel& trained, const Dataset& data,
                              const Pairs& pairs) {
  Dataset more = data;
  more.negatives = {};
  const std::int64_t count = pairs.src.numel();
  more.src = at::cat({data.src, pairs.src});
  more.dst = at::cat({data.dst, pairs.dst});
  more.edge_types = at::cat({data.edge_types, pairs.types});
  more.labels = at::ones({more.num_edges(), 1}, at::kByte);
  const at::Tensor none = at::zeros({count, 1}, at::kBool);
  more.message_mask = at::cat({data.train_masks, none}).squeeze(1);
  for (at::Tensor* masks : {&more.train_masks, &more.val_masks, &more.test_masks}) {
    *masks = at::cat({*masks, none});
  }
  more.validate();
  const at::Tensor logits =
      trained.logits(more).narrow(0, data.num_edges(), count).to(at::kDouble).contiguous();
  return {logits.const_data_ptr<double>(), logits.const_data_ptr<double>() + count};
}

/// The definitions.
double roc_auc_of(const std::vector<double>& positives, const std::vector<double>& negatives) {
  double won = 0;
  for (const double own : positives) {
    for (const double other : negatives) won += own > other ? 1 : own == other ? 0.5 : 0;
  }
  return won / (static_cast<double>(positives.size()) * static_cast<double>(negatives.size()));
}

double average_precision_of(const std::vector<double>& positives,
                            const std::vector<double>& negatives) {
  double sum = 0;
  for (const double own : positives) {
    const auto above = [own](double score) { return score >= own; };
    const auto right =
        static_cast<double>(std::count_if(positives.begin(), positives.end(), above));
    const auto wrong =
        static_cast<double>(std::count_if(negatives.begin(), negatives.end(), above));
    sum += right / (right + wrong);
  }
  return sum / static_cast<double>(positives.size());
}

double f1_of(const std::vector<double>& positives, const std::vector<double>& negatives) {
  const auto predicted = [](double score) { return score > 0; };
  const auto right =
      static_cast<double>(std::count_if(positives.begin(), positives.end(), predicted));
  const auto wrong =
      static_cast<double>(std::count_if(negatives.begin(), negatives.end(), predicted));
  return 2 * right / (right + wrong + static_cast<double>(positives.size()));
}

TEST(LinkNegatives, scores_compare_links_with_the_fixed_pairs) {
  Dataset data = test::links_of_bits();
  TrainedModel trained = test::model_of_integers(data, nn::Decoder::kDistMult);
  Dataset fixed = data;
  fixed.negatives.val = test::links_with_negatives().negatives.val;
  const Pairs links = links_in(data, data.val_masks);
  const std::vector<double> positives = scores_of(trained, data, links),
                            negatives =
                                scores_of(trained, data, typed(fixed.negatives.val.pairs, links));
  ASSERT_NE(positives.size(), negatives.size());
  for (const bool batches : {false, true}) {
    if (batches) {
      trained.options.sampling =
          SamplingOptions{.batch_size = 8, .fanouts = {kAllNeighbors}, .inference_batch_size = 7};
    }
    const auto expect_score = [&](Metric metric, double expected) {
      SCOPED_TRACE(metric_name(metric));
      data.metric = fixed.metric = metric;
      const Scores drawn = evaluate(data, trained), scores = evaluate(fixed, trained);
      EXPECT_TRUE(test::near_number(scores.val, expected, static_cast<double>(positives.size())));
      EXPECT_NE(scores.val, drawn.val);
      EXPECT_EQ(scores.train, drawn.train);
      EXPECT_EQ(scores.test, drawn.test);
    };
    expect_score(Metric::kRocAuc, roc_auc_of(positives, negatives));
    expect_score(Metric::kAveragePrecision, average_precision_of(positives, negatives));
    expect_score(Metric::kMicroF1, f1_of(positives, negatives));
    expect_score(Metric::kMacroF1, f1_of(positives, negatives));
  }
}

/// The ranks of OGB's Evaluator. others: equally many for each score.
void add_ranks(std::vector<double>& ranks, const std::vector<double>& scores,
               const std::vector<double>& others) {
  const std::size_t count = others.size() / scores.size();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    double above = 0, at_least = 0;
    for (std::size_t k = i * count; k < (i + 1) * count; ++k) {
      above += others[k] > scores[i] ? 1 : 0;
      at_least += others[k] >= scores[i] ? 1 : 0;
    }
    ranks.push_back((above + at_least) / 2 + 1);
  }
}

/// nodes: [L, K].
Pairs in_place_of_ends(const Pairs& links, const at::Tensor& nodes, bool of_src) {
  const auto repeated = [&](const at::Tensor& of_links) {
    return of_links.repeat_interleave(nodes.size(1));
  };
  return {.src = of_src ? nodes.flatten() : repeated(links.src),
          .dst = of_src ? repeated(links.dst) : nodes.flatten(),
          .types = repeated(links.types)};
}

TEST(LinkNegatives, links_are_ranked_among_the_fixed_nodes) {
  Dataset data = test::links_of_bits();
  data.negatives = test::links_with_negatives().negatives;
  const auto ranks_of = [&](const TrainedModel& trained, const at::Tensor& masks,
                            const NegativePairs& negatives) {
    const Pairs links = links_in(data, masks);
    const std::vector<double> scores = scores_of(trained, data, links);
    std::vector<double> ranks;
    for (const bool of_src : {true, false}) {
      const at::Tensor& nodes = of_src ? negatives.src : negatives.dst;
      if (!nodes.defined()) continue;
      add_ranks(ranks, scores, scores_of(trained, data, in_place_of_ends(links, nodes, of_src)));
    }
    return ranks;
  };
  for (const nn::Decoder decoder : test::kDecoders) {
    SCOPED_TRACE(name_of(nn::Decoders{}, decoder));
    data.metric = Metric::kRocAuc;
    TrainedModel trained = test::model_of_integers(data, decoder);
    const std::vector<double> val = ranks_of(trained, data.val_masks, data.negatives.val),
                              test = ranks_of(trained, data.test_masks, data.negatives.test);
    ASSERT_EQ(val.size(), 36U);
    ASSERT_EQ(test.size(), 72U);
    for (const bool batches : {false, true}) {
      trained.options.sampling.reset();
      if (batches) {
        trained.options.sampling = SamplingOptions{.batch_size = 8, .fanouts = {kAllNeighbors}};
      }
      const auto mean = [](const std::vector<double>& ranks, const auto& of_rank) {
        double sum = 0;
        for (const double rank : ranks) sum += of_rank(rank);
        return sum / static_cast<double>(ranks.size());
      };
      data.metric = Metric::kMrr;
      const auto reciprocal = [](double rank) { return 1 / rank; };
      const Scores mrr = evaluate(data, trained);
      EXPECT_TRUE(test::near_number(mrr.val, mean(val, reciprocal), 36));
      EXPECT_TRUE(test::near_number(mrr.test, mean(test, reciprocal), 72));
      EXPECT_TRUE(std::isnan(mrr.train));
      data.metric = Metric::kHitsAt10;
      const auto is_hit = [](double rank) { return rank <= 10 ? 1 : 0; };
      const Scores hits = evaluate(data, trained);
      EXPECT_EQ(hits.val, mean(val, is_hit));
      EXPECT_EQ(hits.test, mean(test, is_hit));
    }
  }
}

TEST(LinkNegatives, hits_of_pairs_are_above_the_tenth_best) {
  Dataset data = test::links_of_bits();
  const TrainedModel trained = test::model_of_integers(data, nn::Decoder::kDistMult);
  data.metric = Metric::kHitsAt10;
  const double among_all = evaluate(data, trained).test;
  const at::Tensor pairs = test::links_with_negatives().negatives.val.pairs;
  data.negatives.val.pairs = pairs;
  const Pairs links = links_in(data, data.val_masks);
  std::vector<double> others = scores_of(trained, data, typed(pairs, links));
  std::sort(others.rbegin(), others.rend());
  double hits = 0;
  const std::vector<double> scores = scores_of(trained, data, links);
  for (const double score : scores) hits += score > others[9] ? 1 : 0;
  EXPECT_GT(hits, 0);
  EXPECT_LT(hits, static_cast<double>(scores.size()));
  EXPECT_EQ(evaluate(data, trained).val, hits / static_cast<double>(scores.size()));
  EXPECT_EQ(evaluate(data, trained).test, among_all);
  data.negatives.val.pairs = pairs.narrow(1, 0, 9);
  EXPECT_EQ(evaluate(data, trained).val, 1);
}

TEST(LinkNegatives, other_ranks_are_among_all_nodes) {
  Dataset data = test::links_of_bits();
  const TrainedModel trained = test::model_of_integers(data, nn::Decoder::kComplEx);
  Dataset fixed = data;
  fixed.negatives = test::links_with_negatives().negatives;
  const auto expect_same = [&](Metric metric) {
    data.metric = fixed.metric = metric;
    EXPECT_EQ(evaluate(fixed, trained).val, evaluate(data, trained).val);
    EXPECT_EQ(evaluate(fixed, trained).test, evaluate(data, trained).test);
  };
  expect_same(Metric::kRawMrr);
  expect_same(Metric::kRawHitsAt10);
  for (NegativePairs* pairs : {&fixed.negatives.val, &fixed.negatives.test}) {
    pairs->src.reset();
    pairs->dst.reset();
  }
  expect_same(Metric::kMrr);
}

/// A step that leaves the weights as they are, of a model whose layers read no edges, so that its
/// loss does not depend on batches.
TrainOptions options_of_one_step() {
  TrainOptions options = test::link_options(nn::Decoder::kDistMult);
  options.model = nn::ModelKind::kMlp;
  options.layers = 1;
  options.hidden.reset();
  options.epochs = 1;
  options.optimizer = OptimizerKind::kSgd;
  options.learning_rate = 1e-37;
  return options;
}

TEST(LinkNegatives, training_learns_the_fixed_pairs) {
  Dataset data = test::links_with_negatives();
  data.features = at::eye(data.num_nodes);
  const Pairs links = links_in(data, data.train_masks);
  data.negatives.train.src = (at::arange(288 * 2) * 37).remainder(60).view({288, 2});
  TrainOptions options = options_of_one_step();
  at::manual_seed(options.seed);
  const nn::Model model(model_options(options, make_problem(data, options)));
  const auto parameter = [&](const char* name) {
    return model->named_parameters()[name].detach().to(at::kDouble);
  };
  const at::Tensor weight = parameter("layer0.weight").t(), bias = parameter("layer0.bias"),
                   of_types = parameter("head.types");
  double loss = 0, size = 0, count = 0;
  const auto add = [&](const Pairs& pairs, double sign) {
    const auto products = [&](const at::Tensor& rows, const at::Tensor& types) {
      return (rows.index_select(0, pairs.src) * types.index_select(0, pairs.types) *
              rows.index_select(0, pairs.dst))
          .sum(1);
    };
    const at::Tensor losses = at::softplus(products(weight + bias, of_types) * sign);
    loss += losses.sum().item<double>();
    size += (losses + products(weight.abs() + bias.abs(), of_types.abs())).sum().item<double>();
    count += static_cast<double>(losses.numel());
  };
  add(links, -1);
  add(typed(data.negatives.train.pairs, links), 1);
  add(in_place_of_ends(links, data.negatives.train.src, /*of_src=*/true), 1);
  ASSERT_EQ(count, 288 + 72 + 576);
  const auto number = [](double value) { return at::full({1}, value, at::kDouble); };
  for (const bool batches : {false, true}) {
    if (batches) options.sampling = SamplingOptions{.batch_size = 100, .fanouts = {3}};
    const TrainReport report = train(data, options);
    EXPECT_EQ(report.steps, batches ? 10 : 1);
    // Two rows of a weight and a bias each, products with a type, sums of 16, and over all pairs.
    const double terms = 2 * 2 + 2 + 16 + count;
    EXPECT_TRUE(test::near(number(report.losses[0]).to(at::kFloat), number(loss / count),
                           test::sum_bound(number(size / count), terms, at::kFloat)));
  }
}

TEST(LinkNegatives, a_checkpoint_is_resumed_evaluated_and_predicted_from) {
  Dataset data = test::links_with_negatives();
  for (const Metric metric : {Metric::kRocAuc, Metric::kMrr}) {
    data.metric = metric;
    for (const bool batches : {false, true}) {
      const test::TempFolder folder;
      TrainOptions options = test::link_options(nn::Decoder::kMlp);
      options.dropout = 0.2;
      options.epochs = 12;
      if (batches) options.sampling = test::link_batches();
      const TrainReport whole = test::expect_unbroken(folder, data, options, 5);
      const TrainedModel trained = load_checkpoint(folder.path("whole"));
      EXPECT_EQ(evaluate(data, trained).val, whole.best.val);
      EXPECT_EQ(evaluate(data, trained).test, whole.best.test);
      Dataset other = data;
      other.negatives = {};
      EXPECT_TRUE(at::equal(trained.logits(other), trained.logits(data)));
      options.resume = folder.path("part");
      other.negatives = data.negatives;
      other.negatives.train.pairs = data.negatives.train.pairs.flip(0);
      EXPECT_THROWS(InvalidArgument, "training-negatives", train(other, options));
      other.negatives = data.negatives;
      other.message_mask = at::zeros({data.num_edges()}, at::kBool);
      EXPECT_THROWS(InvalidArgument, "message-edges", train(other, options));
    }
  }
}

TEST(LinkNegatives, threads_change_nothing) {
  Dataset data = test::links_with_negatives();
  data.metric = Metric::kMrr;
  for (const bool batches : {false, true}) {
    TrainOptions options = test::link_options(nn::Decoder::kDistMult);
    options.epochs = 4;
    if (batches) options.sampling = test::link_batches();
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    const TrainReport alone = train(data, options);
    at::set_num_threads(3);
    const TrainReport three = train(data, options);
    at::set_num_threads(threads);
    EXPECT_EQ(three.losses, alone.losses);
    EXPECT_EQ(three.last.val, alone.last.val);
    EXPECT_EQ(three.last.test, alone.last.test);
  }
}

TEST(LinkNegatives, what_does_not_fit_is_an_error) {
  Dataset data = test::links_with_negatives();
  TrainOptions options = test::link_options(nn::Decoder::kMlp);
  options.epochs = 1;
  Dataset without_test = data;
  without_test.metric = Metric::kMrr;
  without_test.negatives.test = {};
  EXPECT_THROWS(InvalidArgument, test::fragments("decoder", "mrr", "mlp"),
                train(without_test, options));
  Dataset raw = data;
  raw.metric = Metric::kRawMrr;
  EXPECT_THROWS(InvalidArgument, test::fragments("decoder", "raw_mrr", "mlp"), train(raw, options));
  options.loss = LossKind::kMargin;
  EXPECT_THROWS(InvalidArgument, test::fragments("margin", "negative pairs of training"),
                train(data, options));
  options.loss = LossKind::kAutomatic;
  data.train_masks = at::zeros_like(data.train_masks);
  EXPECT_THROWS(InvalidArgument, "no training link", train(data, options));
}

}  // namespace
}  // namespace mezzo::link_negatives_test
