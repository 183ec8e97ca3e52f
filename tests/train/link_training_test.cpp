// Training on links.
#include <cmath>

#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/link_data.h"
#include "train/synthetic.h"

namespace mezzo::link_training_test {
namespace {

TEST(LinkTraining, every_decoder_learns_in_each_precision) {
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    for (const nn::Decoder decoder : test::kDecoders) {
      for (const LossKind loss : {LossKind::kAutomatic, LossKind::kMargin}) {
        SCOPED_TRACE(std::string(amp::to_string(precision)) + " " +
                     std::string(name_of(nn::Decoders{}, decoder)));
        TrainOptions options = test::link_options(decoder);
        options.precision = precision;
        options.loss = loss;
        const TrainReport report = train(test::links_within_groups(true), options);
        EXPECT_GT(report.best.val, test::kLinksLearnt);
        EXPECT_GT(report.best.test, test::kLinksLearnt);
      }
    }
  }
}

TEST(LinkTraining, every_metric_of_links_scores) {
  Dataset data = test::links_within_groups(true);
  TrainOptions options = test::link_options(nn::Decoder::kDistMult);
  double filtered = 0;
  for (const Metric metric :
       {Metric::kAveragePrecision, Metric::kMicroF1, Metric::kMacroF1, Metric::kHitsAt10,
        Metric::kRawHitsAt10, Metric::kMrr, Metric::kRawMrr}) {
    data.metric = metric;
    const TrainReport report = train(data, options);
    SCOPED_TRACE(metric_name(metric));
    EXPECT_EQ(report.metric, metric_name(metric));
    EXPECT_EQ(std::isnan(report.best.train), is_of_ranks(metric));
    // Ten nodes of a group have equal features, so 1 / rank cannot be large.
    const bool is_mrr = metric == Metric::kMrr || metric == Metric::kRawMrr;
    EXPECT_GT(report.best.val, is_mrr ? 0.12 : 0.7);
    EXPECT_LE(report.best.val, 1);
    if (metric == Metric::kMrr) filtered = report.best.test;
    if (metric == Metric::kRawMrr) {
      EXPECT_GT(filtered, report.best.test);
    }
  }
}

TEST(LinkTraining, a_checkpoint_is_resumed_evaluated_and_predicted_from) {
  Dataset data = test::links_within_groups(true);
  for (const Metric metric : {Metric::kRocAuc, Metric::kMrr}) {
    data.metric = metric;
    const test::TempFolder folder;
    TrainOptions options = test::link_options(nn::Decoder::kComplEx);
    options.dropout = 0.2;
    options.epochs = 12;
    const TrainReport whole = test::expect_unbroken(folder, data, options, 5);
    const TrainedModel trained = load_checkpoint(folder.path("whole"));
    EXPECT_EQ(trained.data.task, LinkTask::kind);
    EXPECT_EQ(trained.data.num_edge_types, 2);
    EXPECT_EQ(evaluate(data, trained).val, whole.best.val);
    EXPECT_EQ(evaluate(data, trained).test, whole.best.test);
    const at::Tensor all = trained.logits(data);
    EXPECT_EQ(all.sizes(), at::IntArrayRef({data.num_edges(), 1}));
    write_csv(folder.path("p.csv"), predict(data, trained));
    EXPECT_TRUE(test::read_file(folder.path("p.csv")).starts_with("link,p0\n0,"));
    Dataset changed = data;
    changed.edge_types = 1 - data.edge_types;
    options.resume = folder.path("part");
    EXPECT_THROWS(InvalidArgument, "edge-values", train(changed, options));
  }
}

TEST(LinkTraining, other_threads_give_the_same_bits) {
  const Dataset data = test::links_within_groups(true);
  TrainOptions options = test::link_options(nn::Decoder::kDistMult);
  options.epochs = 5;
  const int threads = at::get_num_threads();
  std::vector<std::vector<double>> losses;
  for (const int count : {1, 3}) {
    at::set_num_threads(count);
    losses.push_back(train(data, options).losses);
  }
  at::set_num_threads(threads);
  EXPECT_EQ(losses[0], losses[1]);
}

/// Outputs do not change if more edges join the nodes of a held-out link.
TEST(LinkTraining, held_out_links_carry_no_messages) {
  Dataset data = test::links_within_groups(false);
  data.features = at::eye(data.num_nodes);  // else messages within a group are all equal
  TrainOptions options = test::link_options(nn::Decoder::kDot);
  options.epochs = 3;
  const TrainedModel trained = train(data, options).trained;
  const at::Tensor before = trained.logits(data);
  // A reversed copy of the test links, in no mask: an edge between the same two nodes.
  Dataset more = data;
  const at::Tensor ids = data.test_masks.squeeze(1).nonzero().squeeze(1);
  more.src = at::cat({data.src, data.dst.index_select(0, ids)});
  more.dst = at::cat({data.dst, data.src.index_select(0, ids)});
  const at::Tensor none = at::zeros({ids.numel(), 1}, at::kBool);
  for (at::Tensor* masks : {&more.train_masks, &more.val_masks, &more.test_masks}) {
    *masks = at::cat({*masks, none});
  }
  more.labels = at::ones({more.num_edges(), 1}, at::kByte);
  more.validate();
  EXPECT_TRUE(at::equal(trained.logits(more).narrow(0, 0, data.num_edges()), before));
  // Without masks all edges do.
  Dataset whole = data;
  whole.target = TaskTarget::kNode;
  whole.num_classes = 0;
  for (at::Tensor* column :
       {&whole.labels, &whole.train_masks, &whole.val_masks, &whole.test_masks})
    column->reset();
  EXPECT_FALSE(at::equal(trained.logits(whole), before));
}

TEST(LinkTraining, a_message_mask_says_which_edges_carry_messages) {
  Dataset data = test::links_within_groups(false);
  data.features = at::eye(data.num_nodes);  // else messages within a group are all equal
  TrainOptions options = test::link_options(nn::Decoder::kDot);
  options.epochs = 3;
  const TrainedModel trained = train(data, options).trained;
  const at::Tensor before = trained.logits(data);
  data.message_mask = data.train_masks.squeeze(1);  // as without a mask
  data.validate();
  EXPECT_TRUE(at::equal(trained.logits(data), before));
  data.message_mask = at::zeros({data.num_edges()}, at::kBool);
  data.validate();
  EXPECT_FALSE(at::equal(trained.logits(data), before));
}

TEST(LinkTraining, what_does_not_fit_is_an_error) {
  const Dataset data = test::links_within_groups(false);
  TrainOptions options = test::link_options(nn::Decoder::kMlp);
  options.epochs = 1;
  Dataset ranked = data;
  ranked.metric = Metric::kMrr;
  EXPECT_THROWS(InvalidArgument, test::fragments("decoder", "mrr", "mlp"), train(ranked, options));
  ranked.metric = Metric::kAccuracy;
  EXPECT_THROWS(InvalidArgument, test::fragments("accuracy", "link"), train(ranked, options));
  TrainOptions of_nodes = test::quick_options();
  of_nodes.decoder = nn::Decoder::kDot;
  EXPECT_THROWS(InvalidArgument, test::fragments("decoder", "dot", "node-class"),
                train(test::two_rings(), of_nodes));
  of_nodes.decoder.reset();
  of_nodes.loss = LossKind::kMargin;
  EXPECT_THROWS(InvalidArgument, test::fragments("loss", "margin"),
                train(test::two_rings(), of_nodes));
  options.loss = LossKind::kHuber;
  EXPECT_THROWS(InvalidArgument, test::fragments("loss", "huber"), train(data, options));
  options.loss = LossKind::kAutomatic;
  options.decoder = nn::Decoder::kComplEx;
  options.hidden = 7;
  EXPECT_THROWS(InvalidArgument, "even", train(data, options));
  options.hidden = 8;
  const TrainedModel trained = train(data, options).trained;
  EXPECT_THROWS(InvalidArgument, "1 types of edges",
                trained.logits(test::links_within_groups(true)));

  Dataset without = data;
  without.train_masks = at::zeros_like(data.train_masks);
  EXPECT_THROWS(InvalidArgument, "no training link", train(without, options));
  // Every node is linked to every other.
  Dataset complete = data;
  const at::Tensor nodes = at::arange(data.num_nodes);
  complete.src = nodes.repeat_interleave(data.num_nodes);
  complete.dst = nodes.repeat({data.num_nodes});
  complete.labels = at::ones({complete.num_edges(), 1}, at::kByte);
  for (at::Tensor* masks : {&complete.val_masks, &complete.test_masks}) {
    *masks = at::zeros({complete.num_edges(), 1}, at::kBool);
  }
  complete.train_masks = at::ones({complete.num_edges(), 1}, at::kBool);
  EXPECT_THROWS(InvalidArgument, "negative sampling", train(complete, options));
}

}  // namespace
}  // namespace mezzo::link_training_test
