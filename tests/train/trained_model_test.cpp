#include "mezzo/train/trained_model.h"

#include "mezzo/nn/model/state_dict.h"
#include "mezzo/train/report/metrics.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

using test::quick_options;
using test::two_rings;

TEST(TrainedModel, of_train_is_that_of_its_checkpoint) {
  const test::TempFolder folder;
  TrainOptions options = quick_options();
  options.normalization = nn::Normalization::kBatch;
  options.normalize_features = true;
  options.checkpoint = folder.path("c");
  const TrainResult run = train(two_rings(), options);
  const TrainedModel saved = load_checkpoint(options.checkpoint);
  EXPECT_FALSE(run.trained.model->is_training());
  EXPECT_FALSE(saved.model->is_training());
  EXPECT_EQ(run.trained.epoch, run.best_epoch);
  EXPECT_EQ(saved.epoch, run.best_epoch);
  EXPECT_EQ(run.trained.data.num_features, 6);
  EXPECT_TRUE(saved.options.normalize_features);
  const at::Tensor logits = saved.logits(two_rings());
  EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{40, 2}));
  EXPECT_FALSE(logits.requires_grad());
  EXPECT_TRUE(test::same_bits(run.trained.logits(two_rings()), logits));
  const SplitMasks masks = two_rings().split(0);
  EXPECT_EQ(accuracy(logits, two_rings().labels, masks.test), run.best.test);
}

TEST(TrainedModel, has_the_latest_weights_if_nothing_was_evaluated) {
  TrainOptions options = quick_options();
  options.sampling = SamplingOptions{.batch_size = 4, .fanouts = {-1, -1}};
  TrainCallbacks callbacks;
  callbacks.should_stop = [] { return true; };  // after the first batch
  const TrainResult run = train(two_rings(), options, callbacks);
  EXPECT_EQ(run.trained.epoch, 0);
  EXPECT_EQ(run.trained.logits(two_rings()).size(0), 40);
}

TEST(TrainedModel, logits_of_chosen_nodes_are_rows_of_those_of_all) {
  const Dataset data = two_rings();
  mezzo::detail::for_each(nn::ModelKinds{}, [&]<class Kind>() {
    for (const bool sampled : {false, true}) {
      if (sampled && Kind::kind == nn::ModelKind::kSgc) continue;
      SCOPED_TRACE(Kind::name);
      TrainOptions options = quick_options();
      options.model = Kind::kind;
      options.epochs = 2;
      options.normalize_features = true;
      if (Kind::kind == nn::ModelKind::kSgc) options.hidden.reset();
      if (sampled) options.sampling = SamplingOptions{.batch_size = 8, .fanouts = {-1, -1}};
      const TrainedModel trained = train(data, options).trained;
      const at::Tensor nodes = at::tensor({39, 0, 7, 0}, at::kInt);
      const at::Tensor rows = trained.logits(data, nodes);
      const at::Tensor expected = trained.logits(data).index_select(0, nodes);
      const at::Tensor size = at::full(expected.sizes(), 1 + expected.abs().max().item<double>(),
                                       at::kDouble);  // a layer sums fewer than 100 terms
      EXPECT_TRUE(test::near(rows, expected, test::sum_bound(size, 1e3, at::kFloat)));
    }
  });
}

TEST(TrainedModel, nodes_that_do_not_exist_are_named) {
  const TrainedModel trained = train(two_rings(), quick_options()).trained;
  EXPECT_THROWS(InvalidArgument, test::fragments("[0, 40)", "40"),
                trained.logits(two_rings(), at::tensor({3, 40})));
  EXPECT_THROWS(InvalidArgument, test::fragments("nodes", "integers"),
                trained.logits(two_rings(), at::tensor({0.5})));
  EXPECT_EQ(trained.logits(two_rings(), at::empty({0}, at::kLong)).size(0), 0);
}

TEST(TrainedModel, predictions_of_chosen_nodes_have_their_ids) {
  const test::TempFolder folder;
  const TrainedModel trained = train(two_rings(), quick_options()).trained;
  const Predictions predictions = predict(two_rings(), trained, at::tensor({5, 2}));
  EXPECT_TRUE(at::equal(predictions.classes,
                        predict(two_rings(), trained).classes.index_select(0, at::tensor({5, 2}))));
  write_csv(folder.path("p.csv"), predictions);
  const std::string csv = test::read_file(folder.path("p.csv"));
  EXPECT_NE(csv.find("\n5,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\n2,"), std::string::npos) << csv;
}

TEST(TrainedModel, load_state_dict_refuses_a_checkpoint_and_names_load_checkpoint) {
  const test::TempFolder folder;
  TrainOptions options = quick_options();
  options.checkpoint = folder.path("c");
  nn::Model model = train(two_rings(), options).trained.model;
  EXPECT_THROWS(IoError, test::fragments(options.checkpoint.c_str(), "load_checkpoint"),
                nn::load_state_dict(*model, options.checkpoint));
}

}  // namespace
}  // namespace mezzo
