#include "mezzo/train/options/options.h"

#include <functional>
#include <limits>

#include "support/npy_writer.h"
#include "support/special_numbers.h"

namespace mezzo {
namespace {

TrainOptions gat() {
  TrainOptions options;
  options.model = nn::ModelKind::kGat;
  return options;
}

TEST(TrainOptions, the_defaults_are_good_for_every_model) {
  mezzo::detail::for_each(nn::ModelKinds{}, []<class Kind>() {
    TrainOptions options;
    options.model = Kind::kind;
    EXPECT_NO_THROW(check_options(options)) << Kind::name;
  });
}

TEST(TrainOptions, an_option_out_of_range_or_in_contradiction_is_named) {
  using test::kInf;
  using test::kNaN;
  struct Case {
    const char* name;
    std::function<void(TrainOptions&)> spoil;
  };
  const std::vector<Case> cases = {
      {"layers", [](TrainOptions& o) { o.layers = 0; }},
      {"layers", [](TrainOptions& o) { o.layers = 65537; }},
      {"layers", [](TrainOptions& o) { o.model = nn::ModelKind::kSgc, o.layers = 1LL << 40; }},
      {"hidden", [](TrainOptions& o) { o.hidden = 0; }},
      {"hidden", [](TrainOptions& o) { o.hidden = 16777217; }},
      {"hidden", [](TrainOptions& o) { o.hidden = std::numeric_limits<std::int64_t>::max(); }},
      {"hidden", [](TrainOptions& o) { o.layers = 1, o.hidden = 8; }},
      {"hidden", [](TrainOptions& o) { o.model = nn::ModelKind::kSgc, o.hidden = 8; }},
      {"heads", [](TrainOptions& o) { o.heads = 2; }},
      {"output-heads", [](TrainOptions& o) { o.output_heads = 2; }},
      {"attention-dropout", [](TrainOptions& o) { o.attention_dropout = 0.5; }},
      {"heads", [](TrainOptions& o) { o = gat(), o.heads = 0; }},
      {"heads", [](TrainOptions& o) { o = gat(), o.heads = 16777217; }},
      {"output-heads", [](TrainOptions& o) { o = gat(), o.output_heads = -1; }},
      {"output-heads", [](TrainOptions& o) { o = gat(), o.output_heads = 1LL << 62; }},
      {"attention-dropout", [](TrainOptions& o) { o = gat(), o.attention_dropout = 1; }},
      {"heads", [](TrainOptions& o) { o = gat(), o.layers = 1, o.heads = 4; }},
      {"norm", [](TrainOptions& o) { o.layers = 1, o.normalization = nn::Normalization::kBatch; }},
      {"norm",
       [](TrainOptions& o) {
         o.model = nn::ModelKind::kSgc, o.normalization = nn::Normalization::kLayer;
       }},
      {"self-loops", [](TrainOptions& o) { o.model = nn::ModelKind::kMlp, o.self_loops = false; }},
      {"dropout", [](TrainOptions& o) { o.dropout = 1; }},
      {"dropout", [](TrainOptions& o) { o.dropout = kNaN; }},
      {"epochs", [](TrainOptions& o) { o.epochs = 0; }},
      {"lr", [](TrainOptions& o) { o.learning_rate = 0; }},
      {"lr", [](TrainOptions& o) { o.learning_rate = kInf; }},
      {"heads",
       [](TrainOptions& o) {
         o.model = nn::ModelKind::kGat, o.hidden = 1 << 20, o.heads = 1 << 20;
       }},
      {"lr", [](TrainOptions& o) { o.learning_rate = 1e-60; }},
      {"lr", [](TrainOptions& o) { o.learning_rate = 4e37; }},
      {"loss-factor", [](TrainOptions& o) { o.loss_factor = 1e-60; }},
      {"loss-factor", [](TrainOptions& o) { o.loss_factor = 1e39; }},
      {"weight-decay", [](TrainOptions& o) { o.weight_decay = 1e300; }},
      {"weight-decay", [](TrainOptions& o) { o.weight_decay = -1; }},
      {"weight-decay", [](TrainOptions& o) { o.weight_decay = kNaN; }},
      {"eval-every", [](TrainOptions& o) { o.eval_every = 0; }},
      {"patience", [](TrainOptions& o) { o.patience = 0; }},
      {"patience", [](TrainOptions& o) { o.patience = 5, o.eval_every = 10; }},
      {"split-index", [](TrainOptions& o) { o.split_index = -1; }},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    TrainOptions options;
    cases[i].spoil(options);
    EXPECT_THROWS(InvalidArgument, std::string(cases[i].name) + ":", check_options(options))
        << "case " << i;
  }
}

TEST(TrainOptions, a_captured_step_needs_cuda_and_the_full_graph) {
  TrainOptions options;
  options.capture = true;
  const auto refused_for = [&](const std::string& part) {
    return test::throws<InvalidArgument>([&] { check_options(options); }, {"capture:", part});
  };
  EXPECT_TRUE(refused_for("a CUDA device, got cpu"));
  options.device = at::Device(at::kCUDA, 0);
  EXPECT_NO_THROW(check_options(options)) << "with the dropout of " << options.dropout;
  options.patience = 3;
  EXPECT_NO_THROW(check_options(options)) << "evaluations lie between the steps";
  options.model = nn::ModelKind::kGat;
  options.attention_dropout = 0.25;
  EXPECT_NO_THROW(check_options(options));
  options.sampling.emplace();
  options.sampling->batch_size = 4;
  options.sampling->fanouts = {2, 2};
  EXPECT_TRUE(refused_for("full graph"));
}

TEST(TrainOptions, a_run_may_be_resumed_with_and_without_captured_steps) {
  TrainOptions options;
  const std::string json = config_to_json(options);
  options.capture = true;
  EXPECT_EQ(config_to_json(options), json);
}

TEST(TrainOptions, self_loops_follow_the_model_unless_set) {
  TrainOptions options;
  EXPECT_TRUE(uses_self_loops(options));
  EXPECT_TRUE(uses_self_loops(gat()));
  options.model = nn::ModelKind::kSgc;
  EXPECT_TRUE(uses_self_loops(options));
  for (const nn::ModelKind kind : {nn::ModelKind::kSage, nn::ModelKind::kGin}) {
    options.model = kind;
    EXPECT_FALSE(uses_self_loops(options));
  }
  options.self_loops = true;
  EXPECT_TRUE(uses_self_loops(options));
}

TEST(LossScale, reads_back_what_it_writes) {
  for (const char* text : {"automatic", "none", "dynamic", "1024", "0.1", "1e-05"}) {
    EXPECT_EQ(to_string(parse_loss_scale(text)), text);
  }
}

TEST(LossScale, refuses_what_cannot_scale) {
  for (const char* text : {"", "0", "-1", "nan", "inf", "1e60", "1e-60", "big", "12x"}) {
    EXPECT_THROWS(InvalidArgument, "loss-scale", parse_loss_scale(text)) << text;
  }
}

TEST(Device, reads_cpu_and_refuses_the_rest) {
  EXPECT_EQ(parse_device("cpu"), at::Device(at::kCPU));
  for (const char* text : {"", "tpu", "mps", "cuda:x", "cuda:-2", "cuda:4095"}) {
    EXPECT_THROWS(InvalidArgument, "device", parse_device(text)) << text;
  }
}

TEST(Config, survives_json_bit_for_bit) {
  TrainOptions options = gat();
  options.dataset = "/some/\"place\"";
  options.split = "602020";
  options.csv = {.id = "name", .weight = "a \"b\""};
  options.split_index = 4;
  options.normalize_features = true;
  options.self_loops = false;
  options.layers = 3;
  options.hidden = 7;
  options.output_heads = 5;
  options.dropout = 0.1;
  options.attention_dropout = 1.0 / 3;
  options.normalization = nn::Normalization::kLayer;
  options.skip = true;
  options.learning_rate = 0.1 + 0.2;
  options.optimizer = OptimizerKind::kAdamW;
  options.precision = amp::Precision::kFloat16;
  options.loss_scale = parse_loss_scale("0.3");
  options.seed = 18446744073709551615U;
  options.eval_every = 2;
  options.gradient_traffic = dist::GradientTraffic::kBFloat16;
  const std::string json = config_to_json(options);
  const TrainOptions back = config_from_json(json);
  EXPECT_EQ(config_to_json(back), json);
  EXPECT_EQ(back.csv, options.csv);
  EXPECT_EQ(back.learning_rate, options.learning_rate);
  EXPECT_EQ(back.seed, options.seed);
  EXPECT_EQ(back.heads, std::nullopt);
  EXPECT_EQ(back.hidden, 7);
  EXPECT_EQ(back.self_loops, false);
  EXPECT_EQ(back.gradient_traffic, dist::GradientTraffic::kBFloat16);
}

TEST(Config, a_missing_or_wrong_field_is_named) {
  for (const char* text : {"", "[1, 2]"}) EXPECT_THROWS(IoError, "JSON", config_from_json(text));
  const auto expect_named = [](const std::string& from, const char* to, const char* field) {
    std::string text = config_to_json({});
    text.replace(text.find(from), from.size(), to);
    EXPECT_THROWS(IoError, field, config_from_json(text)) << text;
  };
  expect_named("\"lr\"", "\"rate\"", "lr");
  expect_named("\"layers\":2", "\"layers\":\"two\"", "layers");
  expect_named("\"gcn\"", "\"gnc\"", "gnc");
  expect_named("\"precision\":\"fp32\"", "\"precision\":\"fp8\"", "fp8");
  expect_named("\"gradient-traffic\":\"fp32\"", "\"gradient-traffic\":\"fp8\"",
               "gradient-traffic: 'fp8'");
}

}  // namespace
}  // namespace mezzo
