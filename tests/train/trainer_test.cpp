#include "mezzo/train/trainer.h"

#include <cmath>
#include <functional>

#include <ATen/ATen.h>

#include "mezzo/amp/precision.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/state.h"

#include "support/npy_writer.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

using test::quick_options;
using test::two_rings;

TEST(Trainer, learns_two_rings_with_every_model_in_every_precision) {
  const Dataset data = two_rings();
  mezzo::detail::for_each(nn::ModelKinds{}, [&]<class Kind>() {
    for (const amp::Precision precision : amp::kPrecisions) {
      SCOPED_TRACE(std::string(Kind::name) + " " + std::string(amp::to_string(precision)));
      TrainOptions options = quick_options();
      options.model = Kind::kind;
      if (Kind::kind == nn::ModelKind::kSgc) options.hidden.reset();  // has no hidden layer
      options.precision = precision;
      options.epochs = 40;
      options.learning_rate = 0.05;
      options.dropout = 0.1;
      const TrainReport report = train(data, options);
      EXPECT_EQ(report.best.val, 1);
      EXPECT_EQ(report.last.test, 1);
      EXPECT_LT(report.train_loss, report.losses.front());
      EXPECT_EQ(report.steps, 40);
      EXPECT_EQ(report.model, Kind::name);
    }
  });
}

class TrainerTest : public testing::Test {
 protected:
  TrainOptions options = quick_options();
};
using ProblemTest = TrainerTest;

TEST_F(TrainerTest, equal_options_give_equal_bits) {
  const Dataset data = two_rings();
  options.precision = amp::Precision::kBFloat16;
  const TrainReport a = train(data, options);
  const TrainReport b = train(data, options);
  EXPECT_EQ(a.losses, b.losses);
  options.seed += 1;
  EXPECT_NE(train(data, options).losses, a.losses);
}

TEST_F(TrainerTest, calls_on_epoch_for_every_epoch_and_evaluates_every_fourth) {
  options.eval_every = 4;
  std::vector<std::int64_t> epochs, evaluated;
  TrainCallbacks callbacks;
  callbacks.on_epoch = [&](const EpochRecord& record) {
    epochs.push_back(record.epoch);
    if (record.scores) evaluated.push_back(record.epoch);
    EXPECT_EQ(record.epochs, 10);
    EXPECT_TRUE(std::isfinite(record.loss));
  };
  const TrainReport report = train(two_rings(), options, callbacks);
  EXPECT_EQ(epochs, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{4, 8, 10}));
  EXPECT_TRUE(report.best_epoch == 4 || report.best_epoch == 8) << report.best_epoch;
  EXPECT_EQ(report.stopped_by, StopReason::kEpochs);
}

TEST(Trainer, should_stop_ends_the_run_after_the_epoch) {
  std::int64_t epochs = 0;
  TrainCallbacks callbacks;
  callbacks.should_stop = [&] { return ++epochs == 3; };
  const TrainReport report = train(two_rings(), quick_options(), callbacks);
  EXPECT_EQ(report.epochs_run, 3);
  EXPECT_EQ(report.stopped_by, StopReason::kInterrupted);
  EXPECT_EQ(report.evaluations.back().epoch, 3);
}

TEST_F(TrainerTest, patience_counts_epochs_since_the_best) {
  options.epochs = 500;
  options.learning_rate = 0.05;
  options.patience = 7;
  const TrainReport report = train(two_rings(), options);
  EXPECT_EQ(report.stopped_by, StopReason::kPatience);
  EXPECT_EQ(report.epochs_run, report.best_epoch + 7);
  EXPECT_GE(report.best.val, report.last.val);
}

TEST_F(TrainerTest, patience_needs_validation_nodes) {
  Dataset data = two_rings();
  data.val_masks = at::zeros_like(data.val_masks);
  const TrainReport report = train(data, options);
  EXPECT_EQ(report.best_epoch, 10);
  EXPECT_TRUE(std::isnan(report.best.val));
  options.patience = 3;
  EXPECT_THROWS(InvalidArgument, "patience", train(data, options));
}

TEST_F(TrainerTest, a_loss_that_is_not_finite_is_a_numeric_error) {
  options.learning_rate = 1e38;
  options.optimizer = OptimizerKind::kSgd;
  for (const amp::Precision precision : {amp::Precision::kFloat32, amp::Precision::kBFloat16}) {
    options.precision = precision;
    EXPECT_THROWS(NumericError, "diverged", train(two_rings(), options))
        << amp::to_string(precision);
  }
}

TEST_F(TrainerTest, outputs_that_are_not_finite_for_any_node_are_a_numeric_error) {
  options.epochs = 1;  // its loss is still finite
  options.optimizer = OptimizerKind::kSgd;
  options.learning_rate = options.weight_decay = 1e38;
  EXPECT_THROWS(NumericError, test::fragments("training diverged", "40 of 40 nodes"),
                train(two_rings(), options));
}

TEST_F(TrainerTest, a_loss_scale_below_its_floor_is_a_numeric_error) {
  Dataset data = two_rings();
  data.features = data.features * 1e5;  // too large for float16: the forward itself overflows
  options.epochs = 200;
  options.precision = amp::Precision::kFloat16;
  EXPECT_THROWS(NumericError, "loss scale fell", train(data, options));
  options.loss_scale = parse_loss_scale("none");
  EXPECT_THROWS(NumericError, "the loss is", train(data, options));
}

TEST_F(TrainerTest, a_run_of_skipped_steps_alone_is_a_numeric_error_with_its_report) {
  const test::TempFolder folder;
  Dataset data = two_rings();
  data.features = data.features * 1e5;
  options.epochs = 20;  // over before the scale has fallen to its floor
  options.precision = amp::Precision::kFloat16;
  options.checkpoint = folder.path("c");
  try {
    train(data, options);
    FAIL() << "no error";
  } catch (const TrainingDiverged& error) {
    EXPECT_NE(std::string(error.what()).find("all 20 steps"), std::string::npos) << error.what();
    EXPECT_EQ(error.report().skipped_steps, 20);
  }
  EXPECT_TRUE(std::filesystem::exists(options.checkpoint));
  TrainCallbacks callbacks;
  callbacks.should_stop = [] { return true; };
  EXPECT_EQ(train(data, options, callbacks).skipped_steps, 1) << "it may be resumed";
}

TEST_F(TrainerTest, a_constant_scale_that_always_overflows_is_a_numeric_error) {
  options.epochs = 200;
  options.precision = amp::Precision::kFloat16;
  options.loss_scale = parse_loss_scale("1e30");
  EXPECT_THROWS(NumericError, "steps in a row", train(two_rings(), options));
}

TEST_F(TrainerTest, a_small_constant_scale_is_no_divergence) {
  options.loss_scale = parse_loss_scale("1e-9");
  const TrainReport report = train(two_rings(), options);
  EXPECT_EQ(report.steps, options.epochs);
  EXPECT_EQ(report.final_loss_scale, 1e-9F);
}

TEST_F(TrainerTest, skipped_steps_are_counted) {
  options.precision = amp::Precision::kFloat16;
  options.loss_scale = {};
  const TrainReport dynamic = train(two_rings(), options);
  EXPECT_EQ(dynamic.loss_scale_policy, "dynamic");
  EXPECT_EQ(dynamic.final_loss_scale,
            65536.0 * std::exp2(-static_cast<double>(dynamic.skipped_steps)));
  options.loss_scale = parse_loss_scale("none");
  EXPECT_EQ(train(two_rings(), options).final_loss_scale, 1);
}

TEST_F(TrainerTest, roc_auc_is_a_metric_of_two_classes) {
  Dataset data = two_rings();
  data.metric = Metric::kRocAuc;
  options.epochs = 40;
  options.learning_rate = 0.05;
  const TrainReport report = train(data, options);
  EXPECT_EQ(report.metric, "roc_auc");
  EXPECT_EQ(report.last.test, 1);
}

TEST_F(TrainerTest, roc_auc_of_nodes_of_one_class_is_not_a_number) {
  Dataset data = two_rings();
  data.metric = Metric::kRocAuc;
  data.labels.masked_fill_(data.split(0).test, 0);  // as where they are hidden
  const TrainReport hidden = train(data, options);
  EXPECT_TRUE(std::isnan(hidden.last.test));
  EXPECT_FALSE(std::isnan(hidden.best.val));
  data.labels.masked_fill_(data.split(0).val, 1);
  const TrainReport blind = train(data, options);
  EXPECT_TRUE(std::isnan(blind.best.val));
  EXPECT_EQ(blind.best_epoch, 10);
  options.patience = 3;
  EXPECT_THROWS(InvalidArgument, "patience", train(data, options));
  options.patience.reset();
  data.labels.zero_();
  EXPECT_THROWS(InvalidArgument, "training nodes", train(data, options));
}

TEST(Trainer, unsuitable_data_are_refused) {
  struct Case {
    const char* part;
    std::function<void(Dataset&, TrainOptions&)> spoil;
  };
  const std::vector<Case> cases = {
      {"no node features", [](Dataset& d, TrainOptions&) { d.features = at::Tensor(); }},
      {"no training nodes",
       [](Dataset& d, TrainOptions&) { d.train_masks = at::zeros_like(d.train_masks); }},
      {"two classes", [](Dataset& d, TrainOptions&) { d.labels.zero_(), d.num_classes = 1; }},
      {"roc_auc", [](Dataset& d, TrainOptions&) { d.metric = Metric::kRocAuc, d.num_classes = 3; }},
      {"split", [](Dataset&, TrainOptions& o) { o.split_index = 2; }},
      {"self-loops",
       [](Dataset& d, TrainOptions& o) {
         d.src = d.src.slice(0, 0, 3), d.dst = d.dst.slice(0, 0, 3), o.self_loops = false;
       }},
  };
  for (const Case& c : cases) {
    Dataset data = two_rings();
    TrainOptions options = quick_options();
    c.spoil(data, options);
    EXPECT_THROWS(InvalidArgument, c.part, train(data, options));
  }
}

TEST(Problem, sparse_features_stay_sparse_below_a_ninth) {
  const auto sparse = [](double share) {
    at::Tensor dense = at::zeros({100, 100});
    dense.view({-1}).slice(0, 0, static_cast<std::int64_t>(share * 10000)).fill_(1);
    return dense.to_sparse_csr();
  };
  EXPECT_TRUE(worth_sparse(sparse(0.05)));
  EXPECT_FALSE(worth_sparse(sparse(0.2)));
  EXPECT_FALSE(worth_sparse(at::zeros({100, 100})));
}

TEST_F(TrainerTest, sparse_and_dense_features_are_the_same_problem) {
  Dataset dense = two_rings();
  dense.features = at::cat({dense.features, at::zeros({40, 94})}, 1);
  Dataset sparse = dense;
  sparse.features = dense.features.to_sparse_csr();
  ASSERT_EQ(make_problem(sparse, options).features.layout(), at::kSparseCsr);
  options.dropout = 0;  // draws one number per stored value
  options.epochs = 60;
  options.learning_rate = 0.05;
  options.normalize_features = true;
  EXPECT_EQ(train(dense, options).last.test, 1);
  EXPECT_EQ(train(sparse, options).last.test, 1);
}

TEST_F(ProblemTest, features_are_cast_once_if_only_the_first_layer_reads_them) {
  const at::Tensor x = at::rand({5, 3});
  EXPECT_TRUE(cast_once(x, options).is_same(x));
  options.precision = amp::Precision::kBFloat16;
  EXPECT_TRUE(at::equal(cast_once(x, options), x.to(at::kBFloat16)));
  EXPECT_TRUE(cast_once(x.to_sparse_csr(), options).scalar_type() == at::kFloat);
  EXPECT_EQ(make_problem(two_rings(), options).features.scalar_type(), at::kBFloat16);
  options.skip = true;
  EXPECT_TRUE(cast_once(x, options).is_same(x));
  options.skip = false;
  options.sampling.emplace();
  EXPECT_TRUE(cast_once(x, options).is_same(x));
  options.sampling.reset();
  options.keep_float32 = {"layer1"};
  EXPECT_EQ(cast_once(x, options).scalar_type(), at::kBFloat16);
  options.keep_float32 = {"layer1", "layer0"};
  EXPECT_TRUE(cast_once(x, options).is_same(x));
  options.keep_float32.clear();
  options.precision = amp::Precision::kFloat16;
  EXPECT_TRUE(at::equal(cast_once(x, options), x.to(at::kHalf)));
  EXPECT_EQ(cast_once(x.index_put({at::tensor(0)}, at::tensor(65504.0F)), options).scalar_type(),
            at::kHalf);
  for (const float large : {65520.0F, -65520.0F}) {
    const at::Tensor too_large = x.index_put({at::tensor(0)}, at::tensor(large));
    EXPECT_EQ(cast_once(too_large, options).scalar_type(), at::kFloat) << large;
  }
}

TEST(Problem, edges_are_in_csc_order) {
  const Dataset data = two_rings();
  Graph graph = add_self_loop(Graph::from_dataset(data));
  ASSERT_TRUE(graph.topology().csc().edge_ids.defined());
  TrainOptions options = quick_options();
  for (const nn::ModelKind model :
       {nn::ModelKind::kGcn, nn::ModelKind::kGat, nn::ModelKind::kSage, nn::ModelKind::kMlp}) {
    SCOPED_TRACE(name_of(nn::ModelKinds{}, model));
    options.model = model;
    options.self_loops = true;
    const Topology topology = make_problem(data, options).topology;
    EXPECT_EQ(topology.csc().edge_ids.defined(), model == nn::ModelKind::kMlp);  // reads no edges
    EXPECT_TRUE(at::equal(topology.csc().indptr, graph.topology().csc().indptr));
    EXPECT_TRUE(at::equal(topology.csc().indices, graph.topology().csc().indices));
  }
}

TEST(Problem, models_in_training_read_cast_features_as_they_would_cast_them) {
  const Dataset data = two_rings();
  const TrainOptions options = quick_options();
  const Problem problem = make_problem(data, options);
  mezzo::detail::for_each(nn::ModelKinds{}, [&]<class Kind>() {
    SCOPED_TRACE(Kind::name);
    nn::Model model(problem.features.size(1), 2,
                    {.kind = Kind::kind, .edge_features = 1, .dropout = 0.3});
    const at::Tensor edges = nn::takes_edge_features(Kind::kind)
                                 ? at::ones({problem.topology.num_edges(), 1})
                                 : at::Tensor();
    const amp::PrecisionScope scope(amp::Precision::kBFloat16, at::kCPU);
    const auto logits = [&](const at::Tensor& features) {
      at::manual_seed(1);
      return model->forward({problem.topology, edges}, features);
    };
    EXPECT_TRUE(at::equal(logits(problem.features), logits(problem.features.to(at::kBFloat16))));
  });
}

TEST(BestEvaluation, multiples_of_eval_every_take_precedence_then_the_first) {
  History history;
  EXPECT_EQ(best_evaluation(history, 2, Metric::kAccuracy), nullptr);
  const auto add = [&](std::int64_t epoch, double val) {
    history.evaluations.push_back({epoch, {.train = 1, .val = val, .test = 0}});
  };
  add(3, 0.9);
  EXPECT_EQ(best_evaluation(history, 2, Metric::kAccuracy)->epoch, 3);
  add(4, 0.5);
  EXPECT_EQ(best_evaluation(history, 2, Metric::kAccuracy)->epoch, 4);
  add(6, 0.7);
  add(8, 0.7);
  add(9, 0.8);
  EXPECT_EQ(best_evaluation(history, 2, Metric::kAccuracy)->epoch, 6);
  EXPECT_EQ(best_evaluation(history, 1, Metric::kAccuracy)->epoch, 3);
  EXPECT_EQ(best_evaluation(history, 1, Metric::kMae)->epoch, 4);
}

}  // namespace
}  // namespace mezzo
