#include "mezzo/train/files/checkpoint.h"

#include <algorithm>
#include <functional>
#include <new>
#include <sstream>

#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <torch/serialize/archive.h>
#include <unistd.h>
#include <zlib.h>

#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

using nlohmann::json;
using test::expect_same_weights;
using test::quick_options;
using test::read_file;
using test::two_rings;

/// The model of a checkpoint of one epoch on two_rings().
TrainedModel model_of_rings() {
  const test::TempFolder folder;
  TrainOptions options = quick_options();
  options.epochs = 1;
  options.checkpoint = folder.path("c");
  train(two_rings(), options);
  return load_checkpoint(options.checkpoint);
}

/// 10 epochs at once against 5 and another 5.
void expect_unbroken(const TrainOptions& options) {
  const test::TempFolder folder;
  const TrainReport whole = test::expect_unbroken(folder, two_rings(), options, 5);
  EXPECT_EQ(whole.losses.size(), 10U);
}

TEST(Checkpoint, a_resumed_run_equals_an_unbroken_one_for_every_optimizer) {
  mezzo::detail::for_each(OptimizerKinds{}, []<class Kind>() {
    SCOPED_TRACE(Kind::name);
    TrainOptions options = quick_options();
    options.optimizer = Kind::kind;
    expect_unbroken(options);
  });
}

TEST(Checkpoint, a_resumed_run_equals_an_unbroken_one_in_float16_with_scaler_and_dropout) {
  TrainOptions options = quick_options();
  options.model = nn::ModelKind::kGat;
  options.heads = 2;
  options.dropout = 0.6;
  options.attention_dropout = 0.6;
  options.precision = amp::Precision::kFloat16;
  expect_unbroken(options);
  options.loss_scale = parse_loss_scale("dynamic");
  options.precision = amp::Precision::kBFloat16;
  expect_unbroken(options);
}

TEST(Checkpoint, a_resumed_run_equals_an_unbroken_one_with_batch_statistics) {
  TrainOptions options = quick_options();
  options.model = nn::ModelKind::kSage;
  options.normalization = nn::Normalization::kBatch;
  options.skip = true;
  expect_unbroken(options);
}

TEST(Checkpoint, an_extra_evaluation_does_not_change_the_best_epoch) {
  TrainOptions options = quick_options();
  options.eval_every = 2;  // the first half evaluates epoch 5 as well
  expect_unbroken(options);
}

/// A folder, and options that write the checkpoint `c` in it.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() { options.checkpoint = folder.path("c"); }
  const test::TempFolder folder;
  TrainOptions options = quick_options();
};

TEST_F(CheckpointTest, keeps_the_best_weights_for_evaluation) {
  const Dataset data = two_rings();
  options.dataset = "rings";
  const TrainReport report = train(data, options);
  const TrainedModel trained = load_checkpoint(options.checkpoint);
  EXPECT_EQ(trained.epoch, report.best_epoch);
  EXPECT_EQ(trained.options.dataset, "rings");
  EXPECT_EQ(trained.data.name, "two rings");
  const Scores scores = evaluate(data, trained);
  EXPECT_EQ(scores.train, report.best.train);
  EXPECT_EQ(scores.val, report.best.val);
  EXPECT_EQ(scores.test, report.best.test);
}

TEST_F(CheckpointTest, predictions_are_those_of_the_evaluation) {
  const Dataset data = two_rings();
  train(data, options);
  const TrainedModel trained = load_checkpoint(options.checkpoint);
  const Predictions predictions = predict(data, trained);
  ASSERT_EQ(predictions.classes.size(0), 40);
  const at::Tensor mask = data.split(0).test;
  const at::Tensor right = at::eq(predictions.classes, data.labels).masked_select(mask);
  EXPECT_EQ(
      static_cast<double>(right.sum().item<std::int64_t>()) / static_cast<double>(right.numel()),
      evaluate(data, trained).test);
  EXPECT_TRUE(at::ge(predictions.probabilities, 0.5F).all().item<bool>());
  EXPECT_TRUE(at::le(predictions.probabilities, 1.0F).all().item<bool>());

  write_csv(folder.path("p.csv"), predictions);
  const std::string csv = read_file(folder.path("p.csv"));
  EXPECT_EQ(csv.substr(0, csv.find('\n')), "node,class,probability");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 41);
  Predictions named = predictions;
  named.class_names = {"a, \"b\"", "c"};
  write_csv(folder.path("named.csv"), named);
  const std::string with_names = read_file(folder.path("named.csv"));
  EXPECT_TRUE(with_names.starts_with("node,class,probability,name\n"));
  EXPECT_NE(with_names.find(",\"a, \"\"b\"\"\"\n"), std::string::npos);
  EXPECT_NE(with_names.find(",c\n"), std::string::npos);
  Dataset with_classes = data;
  with_classes.class_names = {"a", "b"};
  EXPECT_EQ(predict(with_classes, trained).class_names, with_classes.class_names);
  write_npy(folder.path("p.npy"), predictions);
  const auto* classes = predictions.classes.data_ptr<std::int64_t>();
  EXPECT_EQ(read_file(folder.path("p.npy")),
            test::npy_int64({40}, std::vector<std::int64_t>(classes, classes + 40)));
}

/// `data` without its labels and splits.
Dataset unlabelled(Dataset data) {
  data.labels = data.train_masks = data.val_masks = data.test_masks = at::Tensor();
  data.num_classes = 0;
  data.validate();
  return data;
}

TEST_F(CheckpointTest, predictions_need_neither_labels_nor_splits) {
  options.epochs = 5;
  options.split_index = 1;
  for (const bool sampled : {false, true}) {
    if (sampled) options.sampling = SamplingOptions{.batch_size = 8, .fanouts = {-1, -1}};
    train(two_rings(), options);
    const TrainedModel trained = load_checkpoint(options.checkpoint);
    const Predictions expected = predict(two_rings(), trained);
    Dataset of_one_class = two_rings(), of_one_split = two_rings();
    of_one_class.labels.zero_();
    of_one_class.num_classes = 1;
    for (at::Tensor* masks :
         {&of_one_split.train_masks, &of_one_split.val_masks, &of_one_split.test_masks}) {
      *masks = masks->narrow(1, 0, 1);
    }
    for (const Dataset& data : {unlabelled(two_rings()), of_one_class, of_one_split}) {
      const Predictions got = predict(data, trained);
      EXPECT_TRUE(test::same_bits(got.classes, expected.classes));
      EXPECT_TRUE(test::same_bits(got.probabilities, expected.probabilities));
      EXPECT_THROW(evaluate(data, trained), InvalidArgument);
    }
  }
}

TEST(Checkpoint, predictions_without_labels_need_the_features_of_the_model) {
  const TrainedModel trained = model_of_rings();
  Dataset data = unlabelled(two_rings());
  data.features = data.features.narrow(1, 0, 5);
  EXPECT_THROWS(InvalidArgument, test::fragments("6 features", "the data have 5"),
                predict(data, trained));
  data.features = at::Tensor();
  EXPECT_THROWS(InvalidArgument, "has no node features", predict(data, trained));
}

TEST(Checkpoint, weights_that_are_not_finite_predict_nothing) {
  const TrainedModel trained = model_of_rings();
  const at::NoGradGuard no_grad;
  for (const at::Tensor& weight : trained.model->parameters()) weight.fill_(std::nan(""));
  EXPECT_THROWS(NumericError, test::fragments("40 of 40 nodes", "fp32"),
                predict(two_rings(), trained));
  EXPECT_THROWS(NumericError, test::fragments("40 of 40 nodes", "fp32"),
                evaluate(two_rings(), trained));
}

TEST_F(CheckpointTest, a_damaged_file_is_one_io_error) {
  options.epochs = 1;
  train(two_rings(), options);
  const std::string good = read_file(options.checkpoint);
  ASSERT_NO_THROW(read_checkpoint(options.checkpoint));

  std::vector<std::string> damaged = {"", "hello", good.substr(0, good.size() / 2),
                                      good.substr(0, good.size() - 1), good + "x"};
  for (std::size_t at = 0; at < good.size(); at += good.size() / 37) {
    damaged.push_back(good);
    damaged.back()[at] = static_cast<char>(damaged.back()[at] ^ 0x10);
  }
  for (const std::string& bytes : damaged) {
    const std::string path = folder.write("damaged", bytes);
    EXPECT_THROWS(IoError, "damaged", read_checkpoint(path)) << bytes.size() << " bytes";
    TrainOptions again = options;
    again.epochs = 2;
    again.resume = path;
    EXPECT_THROWS(IoError, "damaged", train(two_rings(), again));
  }
  EXPECT_THROWS(IoError, "none", read_checkpoint(folder.path("none")));
  EXPECT_THROWS(IoError, "folder", read_checkpoint(folder.path()));
}

TEST(Checkpoint, special_files_are_refused_without_reading) {
  EXPECT_THROWS(IoError, "no regular file", read_checkpoint("/dev/null"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(CheckpointTest, exhausted_memory_is_not_reported_as_a_truncated_file) {
  constexpr std::uintmax_t kSize = std::uintmax_t{1} << 31;
  const std::string mark = "mezzo-checkpoint-1:00000000";
  const std::string large = folder.write("large", ""), other = folder.write("other", "");
  std::filesystem::resize_file(large, kSize);
  std::ofstream(large, std::ios::binary | std::ios::app) << mark;
  std::filesystem::resize_file(other, kSize);
  std::ifstream status("/proc/self/statm");
  rlim_t pages = 0;
  status >> pages;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlim_t more = rlim_t{1} << 29;
  const rlimit tight = {.rlim_cur = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + more,
                        .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  EXPECT_THROW(read_checkpoint(large), std::bad_alloc);
  EXPECT_THROWS(IoError, "expected a checkpoint", read_checkpoint(other));
  setrlimit(RLIMIT_AS, &before);
}
#endif

TEST(Checkpoint, a_final_one_that_cannot_be_written_comes_with_the_report) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  TrainOptions options = quick_options();
  options.checkpoint = "/dev/full";
  try {
    train(two_rings(), options);
    FAIL() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("/dev/full"), std::string::npos) << error.what();
    EXPECT_EQ(error.report().epochs_run, 10);
  }
}

TEST_F(CheckpointTest, resuming_another_run_names_the_difference) {
  options.epochs = 2;
  train(two_rings(), options);
  options.resume = folder.path("c");
  options.epochs = 3;
  struct Case {
    const char* field;
    std::function<void(Dataset&, TrainOptions&)> change;
  };
  const std::vector<Case> cases = {
      {"hidden", [](Dataset&, TrainOptions& o) { o.hidden = 9; }},
      {"model", [](Dataset&, TrainOptions& o) { o.model = nn::ModelKind::kSage; }},
      {"precision", [](Dataset&, TrainOptions& o) { o.precision = amp::Precision::kBFloat16; }},
      {"seed", [](Dataset&, TrainOptions& o) { o.seed = 4; }},
      {"split-index", [](Dataset&, TrainOptions& o) { o.split_index = 1; }},
      {"data name", [](Dataset& d, TrainOptions&) { d.name = "three rings"; }},
      {"data edges",
       [](Dataset& d, TrainOptions&) { d.src = d.src.slice(0, 1), d.dst = d.dst.slice(0, 1); }},
      {"data targets", [](Dataset& d, TrainOptions&) { d.labels = 1 - d.labels; }},
      {"data training-nodes",
       [](Dataset& d, TrainOptions&) { std::swap(d.train_masks, d.test_masks); }},
      {"data edge-weights",
       [](Dataset& d, TrainOptions&) { d.edge_weights = at::ones({d.num_edges()}); }},
      {"2 epochs already", [](Dataset&, TrainOptions& o) { o.epochs = 1; }},
  };
  for (const Case& c : cases) {
    Dataset data = two_rings();
    TrainOptions other = options;
    c.change(data, other);
    EXPECT_THROWS(InvalidArgument, test::fragments("resume", c.field), train(data, other));
  }
}

TEST_F(CheckpointTest, all_differences_of_a_resumed_run_are_listed) {
  options.epochs = 2;
  options.checkpoint = options.resume = folder.path("c");
  TrainOptions written = options;
  written.resume.clear();
  train(two_rings(), written);
  options.hidden = 9;
  options.seed = 4;
  EXPECT_THROWS(InvalidArgument,
                test::fragments("hidden 8, this run has 9", "seed 3, this run has 4"),
                train(two_rings(), options));
}

TEST_F(CheckpointTest, a_resumed_run_may_have_another_learning_rate) {
  options.epochs = 5;
  train(two_rings(), options);
  options.epochs = 8;
  options.resume = options.checkpoint;
  options.checkpoint = folder.path("same");
  train(two_rings(), options);
  options.checkpoint = folder.path("other");
  options.learning_rate = 1e-30;  // moves no weight
  train(two_rings(), options);
  const Checkpoint before = read_checkpoint(folder.path("c"));
  const Checkpoint same = read_checkpoint(folder.path("same"));
  const Checkpoint other = read_checkpoint(folder.path("other"));
  EXPECT_TRUE(test::same_bits(other.weights[0], before.weights[0]));
  EXPECT_FALSE(test::same_bits(same.weights[0], before.weights[0]));
  EXPECT_EQ(other.options.learning_rate, 1e-30);
  EXPECT_EQ(other.options.epochs, 8);
}

TEST_F(CheckpointTest, init_starts_from_the_best_weights) {
  const TrainedModel first = train(two_rings(), options).trained;
  options.init = options.checkpoint;
  options.checkpoint.clear();
  options.epochs = 1;
  options.learning_rate = 1e-30;  // moves no weight
  options.dropout = 0.25;         // is no part of the shape
  const TrainedModel tuned = train(two_rings(), options).trained;
  EXPECT_TRUE(test::same_bits(tuned.logits(two_rings()), first.logits(two_rings())));
}

TEST_F(CheckpointTest, init_names_the_first_option_of_another_shape) {
  train(two_rings(), options);
  options.init = options.checkpoint;
  const auto expect_refused = [&](const std::string& text, auto change) {
    TrainOptions other = options;
    change(other);
    EXPECT_THROWS(InvalidArgument, test::fragments("init", "/c", text), train(two_rings(), other));
  };
  expect_refused("model gcn, this run has sage",
                 [](TrainOptions& o) { o.model = nn::ModelKind::kSage; });
  expect_refused("hidden 8, this run has 9", [](TrainOptions& o) { o.hidden = 9; });
  expect_refused("layers 2, this run has 3", [](TrainOptions& o) { o.layers = 3; });
  options.init.clear();
  options.resume = options.checkpoint;
  EXPECT_TRUE(test::throws<InvalidArgument>(
      [&] {
        TrainOptions both = options;
        both.init = both.resume;
        train(two_rings(), both);
      },
      {"init or resume"}));
}

TEST_F(CheckpointTest, resuming_a_finished_run_gives_its_report) {
  options.epochs = 5;
  for (const std::int64_t eval_every : {1, 2}) {  // 2: the last epoch is not a regular one
    options.eval_every = eval_every;
    options.resume.clear();
    const TrainReport whole = train(two_rings(), options);
    const Checkpoint before = read_checkpoint(options.checkpoint);
    options.resume = options.checkpoint;
    const TrainReport again = train(two_rings(), options);
    EXPECT_EQ(again.epochs_run, 5);
    EXPECT_EQ(again.losses, whole.losses);
    EXPECT_EQ(again.best_epoch, whole.best_epoch);
    EXPECT_EQ(again.best.test, whole.best.test);
    EXPECT_EQ(again.last.test, whole.last.test);
    EXPECT_EQ(again.stopped_by, whole.stopped_by);
    expect_same_weights(read_checkpoint(options.checkpoint), before);
  }
}

/// A checkpoint whose options can be changed.
class ChangedCheckpoint {
 public:
  explicit ChangedCheckpoint(const std::string& path) : path_(path + ".changed") {
    const std::string bytes = read_file(path);
    archive_.load_from(bytes.data(), bytes.size() - kMark.size() - 8);
  }

  json options() { return json::parse(field("config").toStringRef()); }

  /// The path of a valid file with another value of the option, a JSON pointer.
  std::string with(const std::string& option, const json& value) {
    json changed = options();
    changed[json::json_pointer(option)] = value;
    torch::serialize::OutputArchive archive;
    archive.write("config", c10::IValue(changed.dump()));
    for (const char* name : {"history", "names", "weights", "best_weights", "generators"}) {
      archive.write(name, field(name));
    }
    std::ostringstream stream;
    archive.save_to(stream);
    const std::string bytes = stream.str();
    const auto checksum = crc32_z(crc32_z(0, nullptr, 0),
                                  reinterpret_cast<const unsigned char*>(bytes.data()),  // NOLINT
                                  bytes.size());
    std::ofstream(path_, std::ios::binary) << bytes << kMark << fmt::format("{:08x}", checksum);
    return path_;
  }

 private:
  static constexpr std::string_view kMark = "mezzo-checkpoint-1:";

  c10::IValue field(const char* name) {
    c10::IValue value;
    archive_.read(name, value);
    return value;
  }

  std::string path_;
  torch::serialize::InputArchive archive_;
};

TEST(Checkpoint, changed_options_are_checked_and_bounded_by_the_file) {
  const test::TempFolder folder;
  json values = json::parse(R"([0, -1, 0.5, 1.5, 1e9, 1000000000, 1e300, "", "x", true, false,
                                [1, 2], [-1], [0.5], [{}], null])");
  values.push_back(std::numeric_limits<std::int64_t>::max());
  values.push_back(std::numeric_limits<std::uint64_t>::max());
  const Dataset data = two_rings();
  int refused = 0, accepted = 0;
  const auto change_all = [&](TrainOptions options) {
    options.epochs = 1;
    options.checkpoint = folder.path("good");
    train(data, options);
    ASSERT_NO_THROW(evaluate(data, load_checkpoint(options.checkpoint)));
    ChangedCheckpoint changed(options.checkpoint);
    const json flat = changed.options().flatten();
    for (const auto& [key, unused] : flat.items()) {
      for (const json& value : values) {
        SCOPED_TRACE(fmt::format("{} = {}", key, value.dump()));
        try {
          evaluate(data, load_checkpoint(changed.with(key, value)));
          ++accepted;
        } catch (const IoError&) {
          ++refused;
        } catch (const InvalidArgument&) {  // fits no data or no model
          ++refused;
        }
      }
    }
  };
  mezzo::detail::for_each(nn::ModelKinds{}, [&]<class Kind>() {
    SCOPED_TRACE(Kind::name);
    TrainOptions options = quick_options();
    options.model = Kind::kind;
    if (Kind::kind == nn::ModelKind::kGat) options.heads = options.output_heads = 2;
    if (Kind::kind == nn::ModelKind::kSgc) options.hidden.reset();
    change_all(options);
  });
  TrainOptions sampled = quick_options();
  sampled.sampling = SamplingOptions{.batch_size = 8, .fanouts = {-1, -1}};
  change_all(sampled);
  EXPECT_GT(refused, accepted);
  EXPECT_GT(accepted, 0);
}

TEST_F(CheckpointTest, an_invalid_option_is_named) {
  options.epochs = 1;
  train(two_rings(), options);
  ChangedCheckpoint changed(options.checkpoint);
  const auto expect_named = [&](const char* key, const json& value, const char* text) {
    EXPECT_THROWS(IoError, test::fragments("c.changed", text),
                  read_checkpoint(changed.with(key, value)));
  };
  expect_named("/eval-every", 0, "eval-every");
  expect_named("/eval-every", 0.5, "eval-every");
  expect_named("/layers", 1000000000, "layers");
  expect_named("/layers", 60000, "weights or more");
  expect_named("/hidden", 1000000000, "hidden");
  expect_named("/hidden", 1000000, "weights or more");
  expect_named("/data/classes", 1000000000000, "weights or more");
}

TEST_F(CheckpointTest, the_former_name_of_a_task_is_read) {
  options.epochs = 1;
  train(test::rings_of_several_labels(), options);
  ChangedCheckpoint changed(options.checkpoint);
  EXPECT_EQ(changed.options()["data"]["task"], "node-labels");
  const std::string former = changed.with("/data/task", "node-classes");
  EXPECT_EQ(read_checkpoint(former).data.task, Task{.labels = LabelKind::kMultiLabel});
  EXPECT_EQ(read_config(former), read_config(options.checkpoint));  // so it can be resumed
}

TEST_F(CheckpointTest, resuming_may_change_epochs_patience_and_the_path_of_the_data) {
  options.dataset = "/here";
  options.epochs = 2;
  train(two_rings(), options);
  options.resume = folder.path("c");
  options.dataset = "/there";
  options.epochs = 3;
  options.patience = 9;
  EXPECT_EQ(train(two_rings(), options).epochs_run, 3);
}

TEST(Checkpoint, a_model_of_other_data_is_refused) {
  const TrainedModel trained = model_of_rings();
  Dataset wide = two_rings();
  wide.features = at::cat({wide.features, wide.features}, 1);
  EXPECT_THROWS(InvalidArgument, test::fragments("6 features", "12"), evaluate(wide, trained));
  Dataset fine = two_rings();
  fine.num_classes = 3;
  EXPECT_THROWS(InvalidArgument, "2 classes", predict(fine, trained));
}

TEST_F(CheckpointTest, an_unwritable_path_is_an_error_before_training) {
  options.checkpoint = folder.path("none/c");
  bool trained = false;
  TrainCallbacks callbacks;
  callbacks.on_epoch = [&](const EpochRecord&) { trained = true; };
  EXPECT_THROWS(IoError, "none", train(two_rings(), options, callbacks));
  EXPECT_FALSE(trained);
}

TEST_F(CheckpointTest, names_that_are_not_utf8_are_written_with_replacements) {
  Dataset data = two_rings();
  data.name = "caf\xe9";
  options.epochs = 1;
  options.dataset = "/data/caf\xe9";
  train(data, options);
  const Checkpoint checkpoint = read_checkpoint(options.checkpoint);
  EXPECT_EQ(checkpoint.data.name, "caf\xef\xbf\xbd");
  EXPECT_EQ(checkpoint.options.dataset, "");  // rather than a path that leads elsewhere
  options.epochs = 2;
  options.resume = options.checkpoint;
  EXPECT_EQ(train(data, options).epochs_run, 2);
}

}  // namespace
}  // namespace mezzo
