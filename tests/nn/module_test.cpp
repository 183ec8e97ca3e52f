#include <functional>
#include <memory>
#include <sstream>
#include <utility>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/graph/graph.h"
#include "mezzo/graph/transforms/transforms.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/edge_attention_layers.h"
#include "mezzo/nn/conv/edge_conv.h"
#include "mezzo/nn/conv/edge_filter_layers.h"
#include "mezzo/nn/conv/gated_graph_conv.h"
#include "mezzo/nn/conv/gcn2_conv.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/conv/pna_conv.h"
#include "mezzo/nn/conv/propagation_layers.h"
#include "mezzo/nn/jumping_knowledge.h"
#include "mezzo/nn/model/mlp.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/nn/pooling.h"

#include "support/graphs.h"
#include "support/nn_reference.h"

/// Tests of clone() and pretty_print() for all layers.
namespace mezzo::test::module_test {
namespace {

using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;

/// A module that owns another one and copies it in reset().
template <class Impl>
struct OwnerImpl : torch::nn::Cloneable<OwnerImpl<Impl>> {
  explicit OwnerImpl(std::shared_ptr<Impl> module) : part(std::move(module)) {
    this->register_module("part", part);
  }
  void reset() override {
    part = std::dynamic_pointer_cast<Impl>(part->clone());
    this->register_module("part", part);
  }
  std::shared_ptr<Impl> part;
};

struct Case {
  std::string text;  // of pretty_print()
  std::shared_ptr<torch::nn::Module> module, owner;
  std::function<at::Tensor(torch::nn::Module&)> run;
  std::function<std::shared_ptr<torch::nn::Module>(torch::nn::Module&)> owned;
};

/// The rows of the nodes.
at::Tensor output_of(const at::Tensor& out) {
  return out;
}
at::Tensor output_of(const std::pair<at::Tensor, at::Tensor>& of_nodes_and_edges) {
  return of_nodes_and_edges.first;
}

template <class Impl, class... Inputs>
Case make_case(std::string text, const torch::nn::ModuleHolder<Impl>& layer, Inputs... inputs) {
  using Owner = OwnerImpl<Impl>;
  return {
      .text = std::move(text),
      .module = layer.ptr(),
      .owner = std::make_shared<Owner>(layer.ptr()),
      .run =
          [=](auto& module) { return output_of(dynamic_cast<Impl&>(module).forward(inputs...)); },
      .owned = [](auto& owner) { return dynamic_cast<Owner&>(owner).part; }};
}

std::vector<Case> convolutions() {
  const Topology g = random_topology(8, 8, 60, 1);
  const at::Tensor h = uniform({8, 4}, at::kFloat, 2), first = uniform({8, 4}, at::kFloat, 3);
  const at::Tensor types = integers({60}, at::kLong, 4, 0, 1);
  const nn::NodeRows rows(h, uniform({8, 5}, at::kFloat, 5));
  using namespace nn;
  return {
      make_case("mezzo::nn::GraphConv(in_features=4, out_features=3, norm=right, weight=true, "
                "bias=true, allow_zero_in_degree=true, parent_degrees=false)",
                GraphConv(4, 3, {.norm = DegreeNorm::kRight, .allow_zero_in_degree = true}), g, h),
      make_case("mezzo::nn::SAGEConv(in_features=4, in_features_dst=5, out_features=3, "
                "aggregator=pool, feature_dropout=0, bias=true)",
                SAGEConv(4, 3, {.in_features_dst = 5, .aggregator = Aggregator::kPool}), g, rows),
      make_case(
          "mezzo::nn::SAGEConv(in_features=4, in_features_dst=0, out_features=3, "
          "aggregator=lstm, feature_dropout=0.5, bias=false)",
          SAGEConv(4, 3, {.aggregator = Aggregator::kLstm, .feature_dropout = 0.5, .bias = false}),
          g, h),
      make_case("mezzo::nn::SAGEConv(in_features=4, in_features_dst=0, out_features=3, "
                "aggregator=gcn, feature_dropout=0, bias=true)",
                SAGEConv(4, 3, {.aggregator = Aggregator::kGcn}), g, h),
      make_case("mezzo::nn::GATConv(in_features=4, in_features_dst=5, out_features=3, num_heads=2, "
                "feature_dropout=0, attention_dropout=0.25, negative_slope=0.2, residual=true, "
                "bias=true, allow_zero_in_degree=true)",
                GATConv(4, 3,
                        {.in_features_dst = 5,
                         .num_heads = 2,
                         .attention_dropout = 0.25,
                         .residual = true,
                         .allow_zero_in_degree = true}),
                g, rows),
      make_case("mezzo::nn::GATConv(in_features=4, in_features_dst=0, out_features=4, num_heads=1, "
                "feature_dropout=0, attention_dropout=0, negative_slope=0.2, residual=false, "
                "bias=true, allow_zero_in_degree=true)",
                GATConv(4, 4, {.allow_zero_in_degree = true}), g, h),
      make_case("mezzo::nn::GATv2Conv(in_features=4, in_features_dst=0, out_features=3, "
                "num_heads=2, feature_dropout=0, attention_dropout=0, negative_slope=0.2, "
                "residual=true, bias=true, share_weights=true, allow_zero_in_degree=true)",
                GATv2Conv(4, 3,
                          {.num_heads = 2,
                           .residual = true,
                           .share_weights = true,
                           .allow_zero_in_degree = true}),
                g, h),
      make_case(
          "mezzo::nn::DotGatConv(in_features=4, in_features_dst=5, out_features=3, "
          "num_heads=2, allow_zero_in_degree=true)",
          DotGatConv(4, 3, {.in_features_dst = 5, .num_heads = 2, .allow_zero_in_degree = true}), g,
          rows),
      make_case("mezzo::nn::EdgeConv(in_features=4, out_features=3, batch_norm=true, "
                "allow_zero_in_degree=true)",
                EdgeConv(4, 3, {.batch_norm = true, .allow_zero_in_degree = true}), g, h),
      make_case("mezzo::nn::SGConv(in_features=4, out_features=3, k=2, cached=true, bias=true, "
                "allow_zero_in_degree=true)",
                SGConv(4, 3, {.k = 2, .cached = true, .allow_zero_in_degree = true}), g, h),
      make_case("mezzo::nn::TAGConv(in_features=4, out_features=3, k=2, bias=false)",
                TAGConv(4, 3, {.bias = false}), g, h),
      make_case("mezzo::nn::ChebConv(in_features=4, out_features=3, k=3, bias=true)",
                ChebConv(4, 3, {.k = 3}), g, h),
      make_case("mezzo::nn::APPNPConv(k=2, alpha=0.1, edge_drop=0.5)",
                APPNPConv({.k = 2, .edge_drop = 0.5}), g, h),
      make_case(
          "mezzo::nn::GCN2Conv(in_features=4, layer=2, alpha=0.1, lambda=1, "
          "project_initial_features=false, bias=true, allow_zero_in_degree=true)",
          GCN2Conv(4,
                   {.layer = 2, .project_initial_features = false, .allow_zero_in_degree = true}),
          g, h, first),
      make_case("mezzo::nn::GatedGraphConv(in_features=4, out_features=5, num_steps=2, "
                "num_edge_types=2, bias=true)",
                GatedGraphConv(4, 5, {.num_steps = 2, .num_edge_types = 2}), g, h, types),
      make_case("mezzo::nn::GINConv(aggregator=max, initial_eps=0.5, learn_eps=false)",
                GINConv({.aggregator = Aggregator::kMax, .initial_eps = 0.5},
                        Sequential(Linear(4, 3), ReLU(), Linear(3, 2))),
                g, h),
      make_case("mezzo::nn::GINConv(aggregator=sum, initial_eps=0, learn_eps=true)",
                GINConv({.learn_eps = true}, MLP(4, 3, {.normalization = Normalization::kBatch})),
                g, h),
      make_case("mezzo::nn::EdgeWeightNorm(norm=both, eps=0.5)", EdgeWeightNorm({.eps = 0.5}), g,
                uniform({60}, at::kFloat, 6).abs() + 1),
  };
}

std::vector<Case> convolutions_with_edges() {
  const Topology g = connected(8, 8, 52, 1);
  const at::Tensor h = uniform({8, 4}, at::kFloat, 2), e = uniform({60, 3}, at::kFloat, 3);
  using namespace nn;
  return {
      make_case("mezzo::nn::GINEConv(initial_eps=0.5, learn_eps=true)",
                GINEConv({.initial_eps = 0.5, .learn_eps = true}, Sequential(Linear(4, 3), ReLU())),
                g, h, uniform({60, 4}, at::kFloat, 4)),
      make_case("mezzo::nn::EGATConv(in_features=4, in_features_dst=0, in_edge_features=3, "
                "out_features=5, out_edge_features=2, num_heads=2, bias=true)",
                EGATConv(4, 3, 5, 2, {.num_heads = 2}), g, h, e, at::Tensor()),
      make_case("mezzo::nn::EdgeGATConv(in_features=4, in_features_dst=0, edge_features=3, "
                "out_features=5, num_heads=2, feature_dropout=0, attention_dropout=0.5, "
                "negative_slope=0.2, residual=true, allow_zero_in_degree=false, bias=true)",
                EdgeGATConv(4, 3, 5, {.num_heads = 2, .attention_dropout = 0.5}), g, h, e),
      make_case("mezzo::nn::NNConv(in_features=4, in_features_dst=0, out_features=5, "
                "aggregator=max, residual=true, bias=true)",
                NNConv(4, 5, Linear(3, 20), {.aggregator = Aggregator::kMax, .residual = true}), g,
                h, e),
      make_case("mezzo::nn::CFConv(in_features=4, edge_features=3, hidden_features=6, "
                "out_features=5)",
                CFConv(4, 3, 6, 5), g, h, e),
      make_case("mezzo::nn::GatedGCNConv(in_features=4, edge_features=3, out_features=5, "
                "dropout=0, batch_norm=true, residual=true)",
                GatedGCNConv(4, 3, 5), g, h, e),
      make_case("mezzo::nn::PNAConv(in_features=4, out_features=6, aggregators=[mean, std], "
                "scalers=[identity, attenuation], delta=1.5, dropout=0, num_towers=2, "
                "edge_features=3, residual=true)",
                PNAConv(4, 6,
                        {.aggregators = {PnaAggregator::kMean, PnaAggregator::kStd},
                         .scalers = {PnaScaler::kIdentity, PnaScaler::kAttenuation},
                         .delta = 1.5,
                         .num_towers = 2,
                         .edge_features = 3}),
                g, h, e, at::Tensor()),
  };
}

std::vector<Case> other_modules() {
  const Graph graphs = batch({cycle_graph(3), cycle_graph(5)});
  const at::Tensor h = uniform({8, 4}, at::kFloat, 7), other = uniform({8, 4}, at::kFloat, 8);
  const std::vector<at::Tensor> layers = {h, other};
  using namespace nn;
  std::vector<Case> cases = {
      make_case("mezzo::nn::JumpingKnowledge(mode=max, in_features=0, num_layers=0)",
                JumpingKnowledge({.mode = JumpingMode::kMax}), layers),
      make_case("mezzo::nn::JumpingKnowledge(mode=lstm, in_features=4, num_layers=2)",
                JumpingKnowledge({.mode = JumpingMode::kLstm, .in_features = 4, .num_layers = 2}),
                layers),
      make_case("mezzo::nn::SumPooling()", SumPooling(), graphs, h),
      make_case("mezzo::nn::AvgPooling()", AvgPooling(), graphs, h),
      make_case("mezzo::nn::MaxPooling()", MaxPooling(), graphs, h),
      make_case("mezzo::nn::GlobalAttentionPooling()",
                GlobalAttentionPooling(Linear(4, 1), Sequential(Linear(4, 3), ReLU())), graphs, h),
      make_case("mezzo::nn::WeightAndSum(in_features=4)", WeightAndSum(4), graphs, h),
      make_case("mezzo::nn::Set2Set(in_features=4, num_iterations=2, num_layers=2)",
                Set2Set(4, {.num_iterations = 2, .num_layers = 2}), graphs, h),
      make_case("mezzo::nn::MLP(in_features=4, hidden_features=16, out_features=3, num_layers=3, "
                "dropout=0.5, normalization=batch)",
                MLP(4, 3, {.num_layers = 3, .normalization = Normalization::kBatch}), h)};
  mezzo::detail::for_each(ModelKinds{}, [&]<class Kind>() {
    if (takes_edge_features(Kind::kind)) return;  // gine_model_test.cpp
    cases.push_back(make_case(
        "mezzo::nn::Model(kind=" + std::string(Kind::name) +
            ", in_features=4, hidden_features=5, out_features=3, num_layers=2, dropout=0.5, "
            "normalization=layer, skip=true, keep_float32=[layer0])",
        Model(4, 3,
              {.kind = Kind::kind,
               .hidden_features = 5,
               .normalization = Normalization::kLayer,
               .skip = true,
               .keep_float32 = {"layer0"}}),
        graphs, h));
  });
  return cases;
}

std::vector<Case> cases() {
  std::vector<Case> all = convolutions();
  for (const auto& more : {convolutions_with_edges(), other_modules()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

/// Expects the same names and equal tensors with separate storage.
void expect_copies(const torch::OrderedDict<std::string, at::Tensor>& copies,
                   const torch::OrderedDict<std::string, at::Tensor>& tensors) {
  EXPECT_EQ(copies.keys(), tensors.keys());
  for (const auto& item : tensors) {
    EXPECT_TRUE(same_bits(copies[item.key()], item.value())) << item.key();
    EXPECT_NE(copies[item.key()].data_ptr(), item.value().data_ptr()) << item.key();
  }
}

TEST(Module, clones_have_the_same_output_and_parameters_of_their_own) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.text);
    randomise(*c.module, at::kFloat, 1, at::kFloat);
    c.run(*c.module);  // changes running statistics, fills caches
    c.owner->eval();
    const at::Tensor output = c.run(*c.module).detach();
    const std::shared_ptr<torch::nn::Module> owner = c.owner->clone();
    for (const std::shared_ptr<torch::nn::Module>& copy : {c.module->clone(), c.owned(*owner)}) {
      expect_copies(copy->named_parameters(), c.module->named_parameters());
      expect_copies(copy->named_buffers(), c.module->named_buffers());
      EXPECT_FALSE(copy->is_training());
      randomise(*c.module, at::kFloat, 2, at::kFloat);
      EXPECT_TRUE(same_bits(c.run(*copy).detach(), output));
      randomise(*copy, at::kFloat, 2, at::kFloat);
      EXPECT_TRUE(same_bits(c.run(*copy).detach(), c.run(*c.module).detach()));
      randomise(*c.module, at::kFloat, 1, at::kFloat);
    }
  }
}

TEST(Module, prints_its_name_sizes_and_options) {
  for (const Case& c : cases()) {
    std::ostringstream text;
    c.module->pretty_print(text);
    EXPECT_EQ(text.str(), c.text);
  }
}

TEST(Module, prints_its_parts_as_libtorch_does) {
  nn::Model model(4, 3, {.kind = nn::ModelKind::kSage, .num_layers = 1});
  std::ostringstream text;
  text << model;
  EXPECT_EQ(text.str(),
            "mezzo::nn::Model(kind=sage, in_features=4, hidden_features=16, out_features=3, "
            "num_layers=1, dropout=0.5, normalization=none, skip=false, keep_float32=[])(\n"
            "  (layer0): mezzo::nn::SAGEConv(in_features=4, in_features_dst=0, out_features=3, "
            "aggregator=mean, feature_dropout=0, bias=true)(\n"
            "    (fc_neigh): torch::nn::Linear(in_features=4, out_features=3, bias=false)\n"
            "    (fc_self): torch::nn::Linear(in_features=4, out_features=3, bias=true)\n"
            "  )\n"
            ")");
}

}  // namespace
}  // namespace mezzo::test::module_test
