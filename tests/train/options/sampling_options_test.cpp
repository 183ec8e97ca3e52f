#include "mezzo/train/options/sampling_options.h"

#include <functional>

#include "mezzo/train/options/options.h"

#include "support/npy_writer.h"
#include "train/mini_batches.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

using mezzo::detail::for_each;

using test::sampled_options;

TEST(SamplingOptions, what_a_sampler_needs_is_enough_for_every_model_but_sgc) {
  for_each(SamplerKinds{}, []<class Sampler>() {
    for_each(nn::ModelKinds{}, []<class Model>() {
      TrainOptions options = sampled_options(Sampler::kind);
      options.model = Model::kind;
      if constexpr (Model::kind == nn::ModelKind::kSgc) {
        options.hidden.reset();  // has no hidden layer
        EXPECT_THROWS(InvalidArgument, test::fragments("sampling:", "sgc", "full graph"),
                      check_options(options));
      } else if (Sampler::kind == SamplerKind::kLayer && !nn::takes_edge_weights(Model::kind)) {
        EXPECT_THROWS(InvalidArgument,
                      test::fragments("sampler:", "layer", std::string(Model::name)),
                      check_options(options));
      } else {
        EXPECT_NO_THROW(check_options(options)) << Sampler::name << " " << Model::name;
      }
    });
  });
}

TEST(SamplingOptions, an_option_out_of_range_or_of_another_sampler_is_named) {
  constexpr auto kNeighbor = SamplerKind::kNeighbor, kLabor = SamplerKind::kLabor,
                 kLayer = SamplerKind::kLayer, kCluster = SamplerKind::kCluster,
                 kNode = SamplerKind::kSaintNode, kWalk = SamplerKind::kSaintWalk;
  struct Case {
    const char* name;
    SamplerKind sampler;
    std::function<void(SamplingOptions&)> spoil;
  };
  using Counts = std::vector<std::int64_t>;
  const auto set = [](Counts SamplingOptions::*member, const Counts& counts) {
    return [=](SamplingOptions& s) { s.*member = counts; };
  };
  const std::vector<Case> cases = {
      {"batch-size", kNeighbor, [](SamplingOptions& s) { s.batch_size.reset(); }},
      {"batch-size", kNeighbor, [](SamplingOptions& s) { s.batch_size = 0; }},
      {"batch-size", kCluster, [](SamplingOptions& s) { s.batch_size = 8; }},
      {"batch-size", kWalk, [](SamplingOptions& s) { s.batch_size = 8; }},
      {"fanout", kNeighbor, [](SamplingOptions& s) { s.fanouts = {5}; }},
      {"fanout", kLabor, set(&SamplingOptions::fanouts, {5, -2})},
      {"fanout", kLabor, set(&SamplingOptions::fanouts, {5, 0})},  // gcn
      {"fanout", kCluster, set(&SamplingOptions::fanouts, {5, 5})},
      {"fanout", kLayer, set(&SamplingOptions::fanouts, {5, 5})},
      {"batch-size", kLayer, [](SamplingOptions& s) { s.batch_size.reset(); }},
      {"layer-sizes", kLayer, [](SamplingOptions& s) { s.layer_sizes.clear(); }},
      {"layer-sizes", kLayer, [](SamplingOptions& s) { s.layer_sizes = {5}; }},
      {"layer-sizes", kLayer, set(&SamplingOptions::layer_sizes, {5, 0})},
      {"layer-sizes", kLayer, set(&SamplingOptions::layer_sizes, {5, (1LL << 31) + 1})},
      {"layer-sizes", kNeighbor, set(&SamplingOptions::layer_sizes, {5, 5})},
      {"replace", kLayer, [](SamplingOptions& s) { s.replace = true; }},
      {"no-shuffle", kNode, [](SamplingOptions& s) { s.shuffle = false; }},
      {"no-shuffle", kNeighbor,
       [](SamplingOptions& s) { s.shuffle = false, s.balance_classes = true; }},
      {"replace", kLabor, [](SamplingOptions& s) { s.replace = true; }},
      {"replace", kNeighbor,
       [](SamplingOptions& s) {
         s.fanouts = {-1, 5};
         s.replace = true;
       }},
      {"replace", kNeighbor,
       [](SamplingOptions& s) {
         s.fanouts = {5, 1LL << 31};
         s.replace = true;
       }},
      {"layer-dependency", kNeighbor, [](SamplingOptions& s) { s.layer_dependency = true; }},
      {"drop-last", kCluster, [](SamplingOptions& s) { s.drop_last = true; }},
      {"balance-classes", kNode, [](SamplingOptions& s) { s.balance_classes = true; }},
      {"parts", kCluster, [](SamplingOptions& s) { s.parts.reset(); }},
      {"parts", kCluster, [](SamplingOptions& s) { s.parts = 0; }},
      {"parts", kNeighbor, [](SamplingOptions& s) { s.parts = 2; }},
      {"parts-per-batch", kCluster, [](SamplingOptions& s) { s.parts_per_batch = 99; }},
      {"parts-per-batch", kNeighbor, [](SamplingOptions& s) { s.parts_per_batch = 2; }},
      {"saint-budget", kNode, [](SamplingOptions& s) { s.saint_budget.reset(); }},
      {"saint-budget", kNode, [](SamplingOptions& s) { s.saint_budget = -1; }},
      {"saint-budget", kNode, [](SamplingOptions& s) { s.saint_budget = (1LL << 31) + 1; }},
      {"saint-budget", kNeighbor, [](SamplingOptions& s) { s.saint_budget = 2; }},
      {"walk-length", kWalk, [](SamplingOptions& s) { s.walk_length = 0; }},
      {"walk-length", kWalk, [](SamplingOptions& s) { s.walk_length = (1LL << 31) + 1; }},
      {"walk-length", kNode, [](SamplingOptions& s) { s.walk_length = 2; }},
      {"batches-per-epoch", kWalk, [](SamplingOptions& s) { s.batches_per_epoch = 0; }},
      {"batches-per-epoch", kNeighbor, [](SamplingOptions& s) { s.batches_per_epoch = 2; }},
      {"workers", kNeighbor, [](SamplingOptions& s) { s.num_workers = -1; }},
      {"workers", kNeighbor, [](SamplingOptions& s) { s.num_workers = 257; }},
      {"sample-on", kNeighbor, [](SamplingOptions& s) { s.sample_on = SamplePlace::kDevice; }},
      {"prefetch", kNeighbor, [](SamplingOptions& s) { s.prefetch = 0; }},
      {"prefetch", kNeighbor, [](SamplingOptions& s) { s.prefetch = 1025; }},
      {"prefetch", kNeighbor, [](SamplingOptions& s) { s.num_workers = 0, s.prefetch = 2; }},
      {"inference-batch-size", kNode, [](SamplingOptions& s) { s.inference_batch_size = 0; }},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    TrainOptions options = sampled_options(cases[i].sampler);
    cases[i].spoil(*options.sampling);
    EXPECT_THROWS(InvalidArgument, std::string(cases[i].name) + ":", check_options(options))
        << "case " << i;
  }
}

TEST(SamplingOptions, a_model_with_a_term_of_its_own_for_the_node_may_draw_no_neighbours) {
  TrainOptions options = sampled_options(SamplerKind::kNeighbor);
  options.sampling->fanouts = {0, 0};
  for (const nn::ModelKind model :
       {nn::ModelKind::kSage, nn::ModelKind::kGin, nn::ModelKind::kMlp}) {
    options.model = model;
    EXPECT_NO_THROW(check_options(options));
  }
}

TEST(SamplingOptions, a_fanout_is_a_number_or_all) {
  EXPECT_EQ(parse_fanout("15"), 15);
  EXPECT_EQ(parse_fanout("0"), 0);
  EXPECT_EQ(parse_fanout("-1"), -1);
  EXPECT_EQ(parse_fanout("all"), -1);
  for (const char* text : {"", "-2", "1.5", "ten", "5x", "99999999999999999999"}) {
    EXPECT_THROWS(InvalidArgument, "fanout", parse_fanout(text)) << text;
  }
}

/// As sampled_options(), for a run on a GPU, even without one: nothing here asks it.
TrainOptions gpu_options(SamplerKind sampler, SamplePlace place) {
  TrainOptions options = sampled_options(sampler);
  options.device = at::Device(at::kCUDA, 0);
  options.sampling->sample_on = place;
  return options;
}

TEST(SamplingOptions, a_device_draws_what_it_can_and_nothing_else) {
  for_each(SamplerKinds{}, []<class Sampler>() {
    SCOPED_TRACE(Sampler::name);
    const bool can = Sampler::kind == SamplerKind::kNeighbor;
    EXPECT_EQ(draws_on_device(gpu_options(Sampler::kind, SamplePlace::kAuto), 1, 100), can);
    EXPECT_FALSE(draws_on_device(gpu_options(Sampler::kind, SamplePlace::kHost), 1, 100));
    EXPECT_FALSE(draws_on_device(sampled_options(Sampler::kind), 1, 100)) << "no GPU";
    const TrainOptions device = gpu_options(Sampler::kind, SamplePlace::kDevice);
    if constexpr (Sampler::kind == SamplerKind::kNeighbor) {
      EXPECT_NO_THROW(check_options(device));
      EXPECT_TRUE(draws_on_device(device, 1, 100));
    } else {
      EXPECT_THROWS(InvalidArgument, test::fragments("sample-on:", std::string(Sampler::name)),
                    check_options(device));
    }
  });
  TrainOptions on_cpu = sampled_options(SamplerKind::kNeighbor);
  on_cpu.sampling->sample_on = SamplePlace::kDevice;
  EXPECT_THROWS(InvalidArgument, test::fragments("sample-on:", "CUDA", "cpu"),
                check_options(on_cpu));
}

TEST(SamplingOptions, a_device_draws_where_it_has_room) {
  const TrainOptions either = gpu_options(SamplerKind::kNeighbor, SamplePlace::kAuto);
  EXPECT_TRUE(draws_on_device(either, 50, 100));
  EXPECT_FALSE(draws_on_device(either, 51, 100));
  const TrainOptions device = gpu_options(SamplerKind::kNeighbor, SamplePlace::kDevice);
  EXPECT_TRUE(draws_on_device(device, 100, 100));
  EXPECT_THROWS(InvalidArgument, test::fragments("sample-on:", "101 B", "100 B", "cuda:0"),
                draws_on_device(device, 101, 100));
}

TEST(SamplingOptions, workers_are_threads_of_the_host) {
  TrainOptions options = gpu_options(SamplerKind::kNeighbor, SamplePlace::kAuto);
  options.sampling->num_workers = 0;
  EXPECT_TRUE(draws_on_device(options, 1, 100));
  options.sampling->num_workers = 2;
  EXPECT_NO_THROW(check_options(options));
  EXPECT_FALSE(draws_on_device(options, 1, 100));
  options.sampling->sample_on = SamplePlace::kDevice;
  EXPECT_THROWS(InvalidArgument, test::fragments("workers:", "2"), check_options(options));
}

TEST(SamplingOptions, are_part_of_the_config_except_for_workers_and_place) {
  for_each(SamplerKinds{}, []<class Sampler>() {
    TrainOptions options = sampled_options(Sampler::kind);
    options.sampling->inference_batch_size = 17;
    EXPECT_EQ(config_from_json(config_to_json(options)).sampling, options.sampling)
        << Sampler::name;
  });
  TrainOptions options = sampled_options(SamplerKind::kLabor);
  SamplingOptions& sampling = *options.sampling;
  sampling.layer_dependency = sampling.drop_last = sampling.balance_classes = true;
  EXPECT_EQ(config_from_json(config_to_json(options)).sampling, options.sampling);
  sampling.shuffle = sampling.balance_classes = false;
  EXPECT_EQ(config_from_json(config_to_json(options)).sampling, options.sampling);
  const SamplingOptions before = sampling;
  sampling.num_workers = 3;
  sampling.prefetch = 5;
  sampling.sample_on = SamplePlace::kHost;
  EXPECT_EQ(config_from_json(config_to_json(options)).sampling, before);
}

TEST(SamplingOptions, a_missing_or_wrong_field_of_the_config_is_named) {
  const std::string config = config_to_json(sampled_options(SamplerKind::kNeighbor));
  const auto expect_named = [&](const std::string& from, const char* to, const char* field) {
    std::string text = config;
    text.replace(text.find(from), from.size(), to);
    EXPECT_THROWS(IoError, field, config_from_json(text)) << text;
  };
  expect_named("\"sampling\"", "\"samples\"", "sampling");
  expect_named("\"fanout\"", "\"fans\"", "fanout");
  expect_named("\"neighbor\"", "\"neighbour\"", "neighbour");
  expect_named("\"replace\":false", "\"replace\":0", "replace");
}

}  // namespace
}  // namespace mezzo
