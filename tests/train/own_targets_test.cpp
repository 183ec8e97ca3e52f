// Training of modules of the user's that read edges, or have labels of edges, links or graphs.
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

#include "mezzo/core/error.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/edge_attention_layers.h"
#include "mezzo/nn/conv/interaction_block.h"
#include "mezzo/nn/conv/pna_conv.h"
#include "mezzo/nn/model/mlp.h"
#include "mezzo/ops/ops.h"
#include "mezzo/predict/predictor.h"
#include "mezzo/train/steps/loss.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/link_data.h"
#include "train/mini_batches.h"
#include "train/targets.h"

namespace mezzo::test::own_targets_test {
namespace {

constexpr amp::Precision kPrecisions[] = {amp::Precision::kFloat32, amp::Precision::kBFloat16,
                                          amp::Precision::kFloat16};
constexpr std::int64_t kHidden = 8;

/// `data` with a feature of each edge, 0 to 2.
Dataset with_edge_features(Dataset data) {
  data.edge_features = at::arange(data.num_edges()).remainder(3).to(at::kFloat).unsqueeze(1);
  return data;
}

/// One data set of each target.
std::vector<Dataset> data_of(LabelKind kind) {
  return {edges_with_labels(kind), with_edge_features(graphs_with_labels(kind))};
}

/// Options of a short run of nn::Model.
TrainOptions options_of(const Dataset& data, nn::Decoder decoder = nn::Decoder::kDot) {
  TrainOptions options = task_options(data.target);
  options.model = nn::ModelKind::kGine;
  options.hidden = kHidden;
  options.epochs = 4;
  if (data.target == TaskTarget::kLink) options.decoder = decoder;
  return options;
}

SamplingOptions batches_of(const Dataset& data) {
  if (data.target == TaskTarget::kNode) return {.batch_size = 8, .fanouts = {2, 2}};
  return data.target == TaskTarget::kLink ? link_batches() : target_batches(data.target);
}

/// Options of a module of the user's, without what describes nn::Model.
TrainOptions without_model(TrainOptions options) {
  const TrainOptions defaults;
  options.model = defaults.model;
  options.hidden = defaults.hidden;
  options.dropout = defaults.dropout;
  options.readout = defaults.readout;
  options.decoder = defaults.decoder;
  return options;
}

TrainOptions own_options(std::int64_t epochs = 4) {
  TrainOptions options = without_model(task_options(TaskTarget::kNode));
  options.epochs = epochs;
  return options;
}

nn::Head head_of(const Dataset& data, nn::Decoder decoder = nn::Decoder::kMlp) {
  return nn::Head(kHidden, data.num_classes,
                  {.hidden_features = kHidden,
                   .target = data.target,
                   .edge_features = data.target == TaskTarget::kEdge ? data.num_edge_features() : 0,
                   .readout = ReduceOp::kSum,
                   .decoder = decoder,
                   .edge_types = data.num_edge_types,
                   .dropout = 0});
}

/// The layers and the head of nn::Model of kind gine, with its parameters in its order.
struct GineImpl : torch::nn::Module {
  explicit GineImpl(const Dataset& data, nn::Decoder decoder = nn::Decoder::kMlp)
      : of_nodes(data.target == TaskTarget::kNode), last_is_linear(decoder != nn::Decoder::kMlp) {
    std::int64_t width = data.num_features();
    for (const std::string index : {"0", "1"}) {
      const std::int64_t out = of_nodes && index == "1" ? data.num_classes : kHidden;
      edges.push_back(
          register_module("edge" + index, torch::nn::Linear(data.num_edge_features(), width)));
      convs.push_back(register_module(
          "conv" + index,
          nn::GINEConv(nn::GINEConvOptions{},
                       nn::MLP(width, out, {.hidden_features = kHidden, .dropout = 0}))));
      width = out;
    }
    if (!of_nodes) head = register_module("head", head_of(data, decoder));
  }
  std::int64_t num_layers() const { return 2; }
  at::Tensor forward_layer(std::int64_t index, const Topology& topology, const at::Tensor& h,
                           const at::Tensor& edge_rows) {
    const auto i = static_cast<std::size_t>(index);
    const at::Tensor e = mezzo::linear(edge_rows, edges[i]->weight, edges[i]->bias);
    const at::Tensor rows = convs[i](topology, h, e);
    return index == 1 && (of_nodes || last_is_linear) ? rows : at::relu(rows);
  }
  std::vector<torch::nn::Linear> edges;
  std::vector<nn::GINEConv> convs;
  nn::Head head{nullptr};
  bool of_nodes, last_is_linear;
};
TORCH_MODULE(Gine);

/// Expects a run of Gine to equal that of nn::Model bit for bit.
void expect_equal(const Dataset& data, const TrainOptions& options) {
  SCOPED_TRACE(data.name + " " + std::string(name_of(Tasks{}, data.task())) + " " +
               std::string(amp::to_string(options.precision)) +
               (options.sampling ? " in batches" : ""));
  const TrainResult expected = train(data, options);
  at::manual_seed(options.seed);
  const Gine own(data, options.decoder.value_or(nn::Decoder::kMlp));
  const TrainResult run = train(data, own, without_model(options));
  EXPECT_EQ(run.losses, expected.losses);
  EXPECT_NE(run.losses.front(), run.losses.back());
  EXPECT_EQ(run.best.val, expected.best.val);
  EXPECT_EQ(run.num_parameters, expected.num_parameters);
  const std::vector<at::Tensor> weights = own->parameters(),
                                others = expected.trained.model->parameters();
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_TRUE(same_bits(weights[i], others[i])) << i;
  const at::Tensor logits = expected.trained.logits(data);
  EXPECT_TRUE(same_bits(run.trained.logits(data), logits));
  const at::Tensor some = at::tensor({7, 0, 7}, at::kLong);
  EXPECT_TRUE(same_bits(run.trained.logits(data, some), expected.trained.logits(data, some)));
  EXPECT_EQ(evaluate(data, run.trained).val, run.best.val);
}

void expect_equal_with_and_without_batches(const Dataset& data, TrainOptions options) {
  expect_equal(data, options);
  options.sampling = batches_of(data);
  expect_equal(data, options);
}

TEST(OwnTargets, edges_and_graphs_equal_the_model_of_the_same_layers) {
  for (const LabelKind kind : kLabelKinds) {
    for (const Dataset& data : data_of(kind)) {
      for (const amp::Precision precision : kPrecisions) {
        if (kind != LabelKind::kClass && precision != amp::Precision::kFloat32) continue;
        TrainOptions options = options_of(data);
        options.precision = precision;
        expect_equal_with_and_without_batches(data, options);
      }
    }
  }
}

TEST(OwnTargets, nodes_equal_the_model_of_the_same_layers) {
  expect_equal_with_and_without_batches(two_rings(), options_of(two_rings()));
}

TEST(OwnTargets, links_equal_the_model_of_the_same_layers) {
  Dataset data = with_edge_features(links_with_negatives());
  for (const nn::Decoder decoder : kDecoders) {
    SCOPED_TRACE(name_of(nn::Decoders{}, decoder));
    for (const Metric metric : {Metric::kRocAuc, Metric::kMrr}) {
      data.metric = metric;
      expect_equal_with_and_without_batches(data, options_of(data, decoder));
    }
  }
  data.negatives.val = data.negatives.test = {};  // ranks among all nodes
  expect_equal_with_and_without_batches(data, options_of(data, nn::Decoder::kDistMult));
}

/// Interaction blocks, and outputs of the target: of nodes or graphs from the last rows of nodes,
/// of edges from the last rows of edges; with a head of links.
struct InteractionImpl : torch::nn::Module {
  explicit InteractionImpl(const Dataset& data) : target(data.target) {
    constexpr std::int64_t kWidth = 16;
    const std::int64_t edge_width = std::max<std::int64_t>(data.num_edge_features(), 1);
    node = register_module("node", torch::nn::Linear(data.num_features(), kWidth));
    edge = register_module("edge", torch::nn::Linear(edge_width, kWidth));
    for (const std::string name : {"block0", "block1"})
      blocks.push_back(register_module(name, nn::InteractionBlock(kWidth, kWidth)));
    const bool is_link = target == TaskTarget::kLink;
    output =
        register_module("output", torch::nn::Linear(kWidth, is_link ? kHidden : data.num_classes));
    if (is_link) head = register_module("head", head_of(data, nn::Decoder::kDot));
  }
  at::Tensor forward(const nn::ModelInput& input, const at::Tensor& x) {
    const Topology& topology = *input.topology();
    const at::Tensor rows =
        input.edge_rows().defined() ? input.edge_rows() : at::ones({topology.num_edges(), 1});
    at::Tensor h = node(x), e = edge(rows);
    for (nn::InteractionBlock& block : blocks) std::tie(h, e) = block(topology, h, e);
    if (target == TaskTarget::kEdge) return output(e);
    if (target == TaskTarget::kGraph)
      h = segment_reduce(ReduceOp::kSum, input.targets()->graph_sizes, h);
    return output(h);
  }
  TaskTarget target;
  torch::nn::Linear node{nullptr}, edge{nullptr}, output{nullptr};
  std::vector<nn::InteractionBlock> blocks;
  nn::Head head{nullptr};
};
TORCH_MODULE(Interaction);

void expect_learnt(const Dataset& data, const nn::Model& own, const TrainOptions& options,
                   double least = kLearnt) {
  SCOPED_TRACE(data.name + " " + std::string(name_of(Tasks{}, data.task())) + " " +
               std::string(amp::to_string(options.precision)) +
               (options.sampling ? " in batches" : ""));
  const TrainResult run = train(data, own, options);
  EXPECT_GT(run.best.val, least);
  EXPECT_GT(run.best.test, least);
  EXPECT_EQ(evaluate(data, run.trained).test, run.best.test);
  EXPECT_EQ(run.trained.logits(data).size(0), data.num_targets());
}

TEST(OwnTargets, interaction_blocks_learn_every_target_in_each_precision) {
  const Dataset links = links_within_groups(false), nodes = two_rings();
  const Dataset graphs = graphs_with_labels(LabelKind::kClass);
  for (const amp::Precision precision : kPrecisions) {
    TrainOptions options = own_options(150);
    options.precision = precision;
    at::manual_seed(1);
    for (const LabelKind kind : kLabelKinds) {
      if (kind != LabelKind::kClass && precision != amp::Precision::kFloat32) continue;
      const Dataset edges = edges_with_labels(kind);
      expect_learnt(edges, Interaction(edges), options);
    }
    expect_learnt(graphs, Interaction(graphs), options);
    options.epochs = 60;
    expect_learnt(nodes, Interaction(nodes), options);
    expect_learnt(links, Interaction(links), options, kLinksLearnt);
    options.sampling = batches_of(graphs);
    const Dataset featured = with_edge_features(graphs);
    expect_learnt(featured, Interaction(featured), options);
  }
}

/// A layer that reads edges, of nodes.
struct EgatImpl : torch::nn::Module {
  explicit EgatImpl(const Dataset& data) {
    conv = register_module(
        "conv", nn::EGATConv(data.num_features(), data.num_edge_features(), kHidden, kHidden));
    head = register_module("head", head_of(data));
  }
  std::int64_t num_layers() const { return 1; }
  at::Tensor forward_layer(std::int64_t /*index*/, const Topology& topology, const at::Tensor& h,
                           const at::Tensor& edge_rows) {
    return conv(topology, h, edge_rows).first.flatten(1);
  }
  nn::EGATConv conv{nullptr};
  nn::Head head{nullptr};
};
TORCH_MODULE(Egat);

struct PnaImpl : torch::nn::Module {
  explicit PnaImpl(const Dataset& data) {
    conv = register_module(
        "conv", nn::PNAConv(data.num_features(), kHidden,
                            {.aggregators = {nn::PnaAggregator::kMean, nn::PnaAggregator::kSum},
                             .scalers = {nn::PnaScaler::kIdentity},
                             .delta = 1,
                             .edge_features = data.num_edge_features()}));
    head = register_module("head", head_of(data));
  }
  at::Tensor forward(const nn::ModelInput& input, const at::Tensor& x) {
    return conv(*input.topology(), x, input.edge_rows(), input.targets()->graph_sizes.cpu());
  }
  nn::PNAConv conv{nullptr};
  nn::Head head{nullptr};
};
TORCH_MODULE(Pna);

TEST(OwnTargets, egat_and_pna_layers_learn_edges_and_graphs) {
  for (const Dataset& data : data_of(LabelKind::kClass)) {
    for (const amp::Precision precision : kPrecisions) {
      TrainOptions options = own_options(100);
      options.precision = precision;
      at::manual_seed(1);
      if (data.target == TaskTarget::kEdge) {
        expect_learnt(data, Egat(data), options);
        options.sampling = SamplingOptions{.batch_size = 30, .fanouts = {2}};
        expect_learnt(data, Egat(data), options);
      } else {
        expect_learnt(data, Pna(data), options);
        options.sampling = batches_of(data);
        expect_learnt(data, Pna(data), options);
      }
    }
  }
}

/// Outputs that are the features of the edges times 1 and -1.
struct EdgeFeaturesImpl : torch::nn::Module {
  EdgeFeaturesImpl() { weight = register_parameter("weight", at::tensor({1.0F, -1.0F})); }
  at::Tensor forward(const nn::ModelInput& input, const at::Tensor& /*x*/) {
    return input.edge_rows().narrow(0, first, input.edge_rows().size(0) - first).mul(weight);
  }
  at::Tensor weight;
  std::int64_t first = 0;  // leaves out rows, which is an error
};
TORCH_MODULE(EdgeFeatures);

TEST(OwnTargets, outputs_of_edges_are_in_the_order_of_the_data) {
  Dataset data = edges_with_labels(LabelKind::kMultiLabel);
  data.edge_features = at::arange(data.num_edges()).to(at::kFloat).unsqueeze(1) / 50;
  TrainOptions options = own_options(1);
  options.learning_rate = 1e-30;
  const TrainResult run = train(data, EdgeFeatures(), options);
  const at::Tensor expected = at::cat({data.edge_features, -data.edge_features}, 1);
  EXPECT_TRUE(same_bits(run.trained.logits(data), expected));
  const at::Tensor rows = data.train_masks.select(1, 0).nonzero().squeeze(1);
  EXPECT_EQ(
      run.losses[0],
      loss_of(expected.index_select(0, rows), data.labels.index_select(0, rows)).item<double>());
}

/// A decoder of the user's: a linear layer on the products of both ends.
struct ProductHeadImpl : torch::nn::Module {
  explicit ProductHeadImpl(std::int64_t out) {
    linear = register_module("linear", torch::nn::Linear(kHidden, out));
  }
  at::Tensor forward(const at::Tensor& h, const nn::HeadTargets& targets) {
    const at::Tensor rows =
        linear(gsddmm(targets.edges, BinaryOp::kMul, h, h, Target::kSrc, Target::kDst));
    return rows.narrow(0, 0, rows.size(0) - left_out);
  }
  torch::nn::Linear linear{nullptr};
  std::int64_t left_out = 0;
};
TORCH_MODULE(ProductHead);

/// SAGE layers with a head of this type, which may be no submodule.
template <class Head>
struct SageWithImpl : torch::nn::Module {
  SageWithImpl(const Dataset& data, Head own_head, bool registered = true) : head(own_head) {
    first = register_module("first", nn::SAGEConv(data.num_features(), kHidden));
    second = register_module("second", nn::SAGEConv(kHidden, kHidden));
    if (registered) register_module("head", head);
  }
  std::int64_t num_layers() const { return 2; }
  at::Tensor forward_layer(std::int64_t index, const Topology& topology, const at::Tensor& h) {
    return index == 0 ? at::relu(first(topology, h)) : second(topology, h);
  }
  nn::SAGEConv first{nullptr}, second{nullptr};
  Head head;
};
template <class Head>
nn::Model sage_with(const Dataset& data, Head head, bool registered = true) {
  using Impl = SageWithImpl<Head>;
  return torch::nn::ModuleHolder<Impl>(std::make_shared<Impl>(data, head, registered));
}

TEST(OwnTargets, a_head_of_the_users_learns_links) {
  const Dataset data = links_within_groups(false);
  for (const amp::Precision precision : kPrecisions) {
    TrainOptions options = own_options(100);
    options.precision = precision;
    at::manual_seed(1);
    expect_learnt(data, sage_with(data, ProductHead(1)), options, kLinksLearnt);
    options.sampling = link_batches();
    options.epochs = 40;
    expect_learnt(data, sage_with(data, ProductHead(1)), options, kLinksLearnt);
  }
}

/// Resumed after its first half, and read with the model, a run is the same.
template <class Make>
void expect_resumed(const Dataset& data, const Make& make, TrainOptions options) {
  const TempFolder folder;
  options.precision = amp::Precision::kFloat16;
  options.checkpoint = folder.path("whole");
  at::manual_seed(5);
  const nn::Model whole = make();
  const TrainResult expected = train(data, whole, options);
  options.epochs /= 2;
  options.checkpoint = folder.path("half");
  at::manual_seed(5);
  train(data, make(), options);
  options.epochs *= 2;
  options.resume = options.checkpoint;
  EXPECT_EQ(train(data, make(), options).losses, expected.losses);
  expect_same_weights(read_checkpoint(folder.path("half")), read_checkpoint(folder.path("whole")));

  const TrainedModel trained = load_checkpoint(folder.path("whole"), make());
  EXPECT_TRUE(same_bits(trained.logits(data), expected.trained.logits(data)));
  EXPECT_EQ(evaluate(data, trained).test, expected.best.test);
}

TEST(OwnTargets, a_run_is_resumed_and_read_from_its_checkpoint) {
  const Dataset edges = edges_with_labels(LabelKind::kNumbers);
  const Dataset graphs = with_edge_features(graphs_with_labels(LabelKind::kClass));
  TrainOptions options = own_options(6);
  expect_resumed(
      edges, [&] { return nn::Model(Gine(edges)); }, options);
  expect_resumed(
      edges, [&] { return nn::Model(Interaction(edges)); }, options);
  options.sampling = batches_of(edges);
  expect_resumed(
      edges, [&] { return nn::Model(Gine(edges)); }, options);
  options.sampling = batches_of(graphs);
  expect_resumed(
      graphs, [&] { return nn::Model(Interaction(graphs)); }, options);
}

TEST(OwnTargets, may_be_a_model_that_the_program_has_made) {
  const Dataset data = edges_with_labels(LabelKind::kClass);
  const nn::Model made(data.num_features(), 2,
                       {.kind = nn::ModelKind::kGine,
                        .target = TaskTarget::kEdge,
                        .edge_features = 1,
                        .dropout = 0,
                        .activation = [](const at::Tensor& h) { return h.tanh(); }});
  expect_learnt(data, made, own_options(120));
}

/// Whether train() refuses the model, with these words.
testing::AssertionResult refusal(const Dataset& data, const nn::Model& model,
                                 const TrainOptions& options, const std::string& words) {
  return throws<InvalidArgument>([&] { train(data, model, options); }, {words});
}

TEST(OwnTargets, heads_that_do_not_fit_the_labels_are_errors) {
  const Dataset edges = edges_with_labels(LabelKind::kClass);
  const Dataset graphs = graphs_with_labels(LabelKind::kClass), nodes = two_rings();
  const Dataset links = links_within_groups(true);
  const TrainOptions options = own_options();
  const nn::Head none{nullptr};
  EXPECT_TRUE(refusal(edges, sage_with(edges, none, false), options,
                      "model: expected one with a head for outputs of edges, such as a member "
                      "`head` of type nn::Head, got none"));
  Interaction without(edges);
  EXPECT_TRUE(refusal(links, without, options, "expected one with a head for outputs of links"));
  EXPECT_TRUE(refusal(nodes, sage_with(nodes, head_of(edges)), options,
                      "model: expected one without a head for outputs of nodes, got one"));
  EXPECT_TRUE(refusal(edges, sage_with(edges, head_of(graphs)), options,
                      "expected a head for 2 outputs of edges, got one for 2 of graphs"));
  nn::HeadOptions of_edges = head_of(edges)->options;
  of_edges.out_features = 3;
  EXPECT_TRUE(refusal(edges, sage_with(edges, nn::Head(of_edges)), options,
                      "expected a head for 2 outputs of edges, got one for 3 of edges"));
  of_edges.out_features = 2;
  of_edges.edge_features = 4;
  EXPECT_TRUE(refusal(edges, sage_with(edges, nn::Head(of_edges)), options,
                      "expected a head with edge_features 1, as the data have, got 4"));
  nn::HeadOptions of_links = head_of(links, nn::Decoder::kDistMult)->options;
  of_links.edge_types = 1;
  EXPECT_TRUE(refusal(links, sage_with(links, nn::Head(of_links)), options,
                      "expected a head with edge_types 2, as the data have, got 1"));
  EXPECT_TRUE(throws<InvalidArgument>(
      [&] { sage_with(edges, head_of(edges), /*registered=*/false); },
      {"Model: expected the member `head` to be a submodule", "register_module"}));

  Dataset ranked = links;
  ranked.metric = Metric::kMrr;
  EXPECT_TRUE(refusal(ranked, sage_with(ranked, ProductHead(1)), options,
                      "model: the metric mrr scores links one by one, which needs a `head` of type "
                      "nn::Head"));
  EXPECT_TRUE(refusal(ranked, sage_with(ranked, head_of(ranked)), options,
                      "decoder: the metric mrr scores all nodes for each link"));
}

TEST(OwnTargets, results_of_other_shapes_are_errors) {
  const Dataset edges = edges_with_labels(LabelKind::kClass);
  const TrainOptions options = own_options();
  EdgeFeatures cut;
  cut->first = 5;
  EXPECT_TRUE(
      refusal(edges, cut, options, "expected forward() to return [120, 2], one row per edge, got"));
  EXPECT_TRUE(refusal(with_edge_features(graphs_with_labels(LabelKind::kClass)), EdgeFeatures(),
                      options, "expected forward() to return [40, 2], one row per graph, got"));
  ProductHead head(2);
  head->left_out = 1;
  EXPECT_TRUE(refusal(edges, sage_with(edges, head), options,
                      "expected the head to return [72, 2], one row per edge, link or graph"));
  EXPECT_TRUE(refusal(edges, sage_with(edges, ProductHead(3)), options,
                      "expected the head to return [72, 2], one row per edge, link or graph"));
}

TEST(OwnTargets, options_that_contradict_the_module_are_errors) {
  const Dataset edges = edges_with_labels(LabelKind::kClass), nodes = two_rings();
  TrainOptions options = own_options();
  options.sampling = batches_of(nodes);
  EXPECT_TRUE(refusal(nodes, Interaction(nodes), options,
                      "sampling: expected none for a module without forward_layer(), which runs on "
                      "whole graphs, and labels of nodes"));
  EXPECT_TRUE(refusal(edges, Interaction(edges), options, "and labels of edges"));
  options.sampling = SamplingOptions{.sampler = SamplerKind::kCluster, .parts = 2};
  EXPECT_TRUE(refusal(nodes, Gine(nodes), options, "need the sampler neighbor"));
  options.sampling.reset();
  options.self_loops = true;
  EXPECT_TRUE(refusal(nodes, Gine(nodes), options, "self-loops: own reads edge features"));
  options.self_loops.reset();
  options.decoder = nn::Decoder::kDot;
  EXPECT_TRUE(refusal(edges, Gine(edges), options, "decoder: expected the default"));
  options.decoder.reset();
  Dataset weighted = nodes;
  weighted.edge_weights = at::ones({nodes.num_edges()});
  EXPECT_TRUE(
      refusal(weighted, Gine(nodes), options, "own reads edge features and takes no edge weights"));
  const TrainedModel trained = train(edges, Interaction(edges), options).trained;
  EXPECT_TRUE(throws<InvalidArgument>([&] { Predictor predictor(trained); },
                                      {"Predictor", "module of your own"}));
}

TEST(OwnTargets, other_members_of_the_name_head_are_layers) {
  const Dataset data = two_rings();
  struct NetImpl : torch::nn::Module {
    NetImpl() {
      conv = register_module("conv", nn::SAGEConv(6, kHidden));
      head = register_module("head", torch::nn::Sequential(torch::nn::Linear(kHidden, 2)));
    }
    std::int64_t num_layers() const { return 1; }
    at::Tensor forward_layer(std::int64_t /*index*/, const Topology& topology,
                             const at::Tensor& h) {
      return head->forward(conv(topology, h));
    }
    nn::SAGEConv conv{nullptr};
    torch::nn::Sequential head{nullptr};
  };
  expect_learnt(data, torch::nn::ModuleHolder<NetImpl>(std::make_shared<NetImpl>()),
                own_options(30));
}

}  // namespace
}  // namespace mezzo::test::own_targets_test
