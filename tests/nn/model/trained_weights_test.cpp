// nn::load_state_dict of layers and models that DGL and PyG trained (tests/data/weights): they
// compute in float64 what the library computed.
#include <filesystem>
#include <set>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/data/safetensors.h"
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
#include "mezzo/nn/model/state_dict.h"
#include "mezzo/nn/normalization.h"
#include "mezzo/nn/pooling.h"
#include "mezzo/nn/topk_pooling.h"

#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::test::trained_weights_test {
namespace {

using torch::nn::Linear;
using torch::nn::ReLU;
using torch::nn::Sequential;
using Paths = std::map<std::string, std::string>;

Graph graph_of(const std::map<std::string, at::Tensor>& tensors) {
  Graph graph(Topology::from_coo(on_device(tensors.at("src")), on_device(tensors.at("dst")), 8, 8));
  graph.set_batch(at::tensor({5, 3}), at::tensor({12, 4}));
  return graph;
}

/// The files of a library: what it was given and computed, and the trained weights.
class TrainedWeights : public testing::Test {
 protected:
  void read(const std::string& library, std::string suffix) {
    folder_ = std::filesystem::path(MEZZO_TRAINED_WEIGHTS) / library;
    suffix_ = std::move(suffix);
    results_ = data::read_safetensors(folder_.string() + ".safetensors");
    graph_ = graph_of(results_);
    g_ = graph_.topology();
    looped_ = add_self_loop(graph_).topology();
    x_ = on_device(results_.at("x").to(at::kDouble));
    y_ = on_device(results_.at("y").to(at::kDouble));
    e_ = on_device(results_.at("e").to(at::kDouble));
  }

  /// Expects that the module, with the weights in the file of this name, computes the results of
  /// this name. They agree to one rounding to float32, which is below the goal of 1e-6.
  template <class Module, class Call>
  void expect(const std::string& name, Module module, Call call, const Paths& paths = {}) {
    SCOPED_TRACE(name);
    checked_.insert(name + suffix_);
    module->to(test_device());
    module->to(at::kDouble);
    nn::load_state_dict(*module, (folder_ / (name + suffix_)).string(), paths);
    module->eval();
    expect_near(name, call(module));
  }

  /// Of a layer that takes a structure and rows.
  template <class Module>
  void expect_layer(const std::string& name, Module module, const Topology& topology,
                    const Paths& paths = {}) {
    expect(
        name, module, [&](Module& m) { return m->forward(topology, x_); }, paths);
  }

  void expect_all_checked() const {
    std::set<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(folder_)) {
      files.insert(file.path().filename().string());
    }
    EXPECT_EQ(files, checked_);
  }

  Topology g_, looped_;
  at::Tensor x_, y_, e_;  // of nodes, of destinations, of edges
  Graph graph_;

 private:
  void expect_near(const std::string& name, const at::Tensor& got) {
    const at::Tensor expected = results_.at(name);
    EXPECT_TRUE(near(got, expected, sum_bound(expected.abs(), 1, at::kFloat)));
  }
  void expect_near(const std::string& name, const std::pair<at::Tensor, at::Tensor>& got) {
    expect_near(name, got.first);
    expect_near(name + ".edges", got.second);
  }

  std::filesystem::path folder_;
  std::string suffix_;
  std::map<std::string, at::Tensor> results_;
  std::set<std::string> checked_;
};

Sequential mlp(std::int64_t in, std::int64_t hidden, std::int64_t out) {
  return Sequential(Linear(in, hidden), ReLU(), Linear(hidden, out));
}

class DglWeights : public TrainedWeights {
 protected:
  void SetUp() override { read("dgl", ".safetensors"); }

  void expect_attention_layers();
  void expect_aggregation_layers();
  void expect_propagation_layers();
  void expect_edge_layers();
  void expect_readouts();
};

class PygWeights : public TrainedWeights {
 protected:
  void SetUp() override { read("pyg", ".pt"); }

  void expect_attention_layers();
  void expect_aggregation_layers();
  void expect_propagation_layers();
  void expect_poolings();
  void expect_normalizations();
  void expect_models();
};

void DglWeights::expect_attention_layers() {
  const auto pairs = [&](auto& m) { return m->forward(g_, {x_, y_}); };
  expect_layer("gat", nn::GATConv(5, 3, {.num_heads = 2}), g_);
  expect_layer("gat_residual", nn::GATConv(5, 3, {.num_heads = 2, .residual = true}), g_);
  expect("gat_pair", nn::GATConv(5, 3, {.in_features_dst = 4, .num_heads = 2}), pairs);
  expect_layer("gatv2", nn::GATv2Conv(5, 3, {.num_heads = 2, .residual = true}), g_);
  expect_layer("gatv2_shared", nn::GATv2Conv(5, 3, {.num_heads = 2, .share_weights = true}), g_);
  expect_layer("dot_gat", nn::DotGatConv(5, 3, {.num_heads = 2}), g_);
}

void DglWeights::expect_aggregation_layers() {
  expect_layer("graph_conv", nn::GraphConv(5, 3), g_);
  expect_layer("sage_mean", nn::SAGEConv(5, 3), g_);
  expect_layer("sage_gcn", nn::SAGEConv(5, 3, {.aggregator = nn::Aggregator::kGcn}), g_);
  expect_layer("sage_pool", nn::SAGEConv(5, 3, {.aggregator = nn::Aggregator::kPool}), g_);
  expect_layer("sage_lstm", nn::SAGEConv(5, 3, {.aggregator = nn::Aggregator::kLstm}), g_);
  expect("sage_pair", nn::SAGEConv(5, 3, {.in_features_dst = 4}), [&](auto& m) {
    return m->forward(g_, {x_, y_});
  });
  expect_layer("gin", nn::GINConv({.learn_eps = true}, mlp(5, 6, 3)), g_);
  expect("gine", nn::GINEConv({.learn_eps = true}, mlp(4, 6, 3)),
         [&](auto& m) { return m->forward(g_, x_.narrow(1, 0, 4).contiguous(), e_); });
  expect_layer("edge", nn::EdgeConv(5, 3), g_);
  expect_layer("edge_norm", nn::EdgeConv(5, 3, {.batch_norm = true}), g_);
  expect("gated_graph", nn::GatedGraphConv(5, 6, {.num_steps = 2, .num_edge_types = 2}),
         [&](auto& m) { return m->forward(g_, x_, on_device(at::arange(16).remainder(2))); });
}

void DglWeights::expect_propagation_layers() {
  expect_layer("sg", nn::SGConv(5, 3, {.k = 2}), g_);
  expect_layer("tag", nn::TAGConv(5, 3, {.k = 2}), g_);
  expect_layer("cheb", nn::ChebConv(5, 3, {.k = 3}), g_);
  expect_layer("appnp", nn::APPNPConv({.k = 3, .alpha = 0.2}), g_);
  expect("gcn2", nn::GCN2Conv(5, {.layer = 2, .project_initial_features = false}),
         [&](auto& m) { return m->forward(g_, x_, x_.flip(0)); });
}

void DglWeights::expect_edge_layers() {
  const auto with_edges = [&](auto& m) { return m->forward(g_, x_, e_); };
  expect("egat", nn::EGATConv(5, 4, 3, 2, {.num_heads = 2}), with_edges);
  expect("edge_gat", nn::EdgeGATConv(5, 4, 3, {.num_heads = 2}), with_edges);
  expect("nn_conv", nn::NNConv(5, 3, mlp(4, 6, 15), {.residual = true}), with_edges);
  expect("cf", nn::CFConv(5, 4, 6, 3), with_edges);
  expect("gated_gcn", nn::GatedGCNConv(5, 4, 3), with_edges);
  using nn::PnaAggregator, nn::PnaScaler;
  const nn::PNAConv pna(
      4, 6,
      {.aggregators = {PnaAggregator::kMean, PnaAggregator::kMax, PnaAggregator::kStd},
       .scalers = {PnaScaler::kIdentity, PnaScaler::kAmplification},
       .delta = 1,
       .num_towers = 2,
       .edge_features = 4});
  expect("pna", pna, [&](auto& m) {
    return m->forward(g_, x_.narrow(1, 0, 4).contiguous(), e_, graph_.batch_num_nodes());
  });
}

void DglWeights::expect_readouts() {
  const auto readout = [&](auto& m) { return m->forward(graph_, x_); };
  expect("global_attention", nn::GlobalAttentionPooling(Linear(5, 1), Sequential(Linear(5, 3))),
         readout);
  expect("weight_and_sum", nn::WeightAndSum(5), readout);
  expect("set2set", nn::Set2Set(5, {.num_iterations = 2}), readout);
  expect("jumping_knowledge",
         nn::JumpingKnowledge({.mode = nn::JumpingMode::kLstm, .in_features = 5, .num_layers = 3}),
         [&](auto& m) {
           return m->forward({x_, x_.flip(0), x_.flip(1)});
         });
}

TEST_F(DglWeights, layers_and_a_model_compute_what_dgl_computes) {
  expect_attention_layers();
  expect_aggregation_layers();
  expect_propagation_layers();
  expect_edge_layers();
  expect_readouts();
  const nn::Model model(5, 3, {.kind = nn::ModelKind::kSage, .hidden_features = 6});
  expect_layer("script", model, g_, {{"layer0", "layers.0"}, {"layer1", "layers.1"}});
  expect_all_checked();
}

void PygWeights::expect_attention_layers() {
  const auto heads = [&](bool concat, const Topology& topology) {
    return [&, concat](auto& m) {
      const at::Tensor out = m->forward(topology, x_);
      return concat ? out.flatten(1) : out.mean(1);
    };
  };
  expect("gat", nn::GATConv(5, 3, {.num_heads = 2, .residual = true}), heads(true, looped_));
  expect("gat_mean", nn::GATConv(5, 3, {.num_heads = 2}), heads(false, looped_));
  expect("gat_pair", nn::GATConv(5, 3, {.in_features_dst = 4, .num_heads = 2}), [&](auto& m) {
    return m->forward(g_, {x_, y_}).flatten(1);
  });
  expect("gatv2", nn::GATv2Conv(5, 3, {.num_heads = 2}), heads(true, looped_));
  expect("gatv2_mean", nn::GATv2Conv(5, 3, {.num_heads = 2, .residual = true}),
         heads(false, looped_));
  expect("gatv2_shared",
         nn::GATv2Conv(5, 3, {.num_heads = 2, .bias = false, .share_weights = true}),
         heads(true, looped_));
}

void PygWeights::expect_aggregation_layers() {
  expect_layer("gcn", nn::GraphConv(5, 3), looped_);
  expect_layer("sage", nn::SAGEConv(5, 3), g_);
  expect("sage_pair", nn::SAGEConv(5, 3, {.in_features_dst = 4}), [&](auto& m) {
    return m->forward(g_, {x_, y_});
  });
  expect_layer("sage_pool", nn::SAGEConv(5, 3, {.aggregator = nn::Aggregator::kPool}), g_);
  expect_layer("gin", nn::GINConv({.learn_eps = true}, mlp(5, 6, 3)), g_);
  expect("gine", nn::GINEConv({.learn_eps = true}, mlp(4, 6, 3)),
         [&](auto& m) { return m->forward(g_, x_.narrow(1, 0, 4).contiguous(), e_); });
  expect_layer("edge", nn::EdgeConv(5, 3), g_);
  expect_layer("edge_sequential", nn::EdgeConv(5, 3), g_);
  expect_layer("gated_graph", nn::GatedGraphConv(5, 6), g_);
  expect("nn_conv",
         nn::NNConv(5, 3, mlp(4, 6, 15), {.aggregator = nn::Aggregator::kSum, .residual = true}),
         [&](auto& m) { return m->forward(g_, x_, e_); });
}

void PygWeights::expect_propagation_layers() {
  expect_layer("sg", nn::SGConv(5, 3, {.k = 2}), looped_);
  expect_layer("tag", nn::TAGConv(5, 3, {.k = 2}), g_);
  expect_layer("cheb", nn::ChebConv(5, 3, {.k = 3, .activation = {}}), g_);
  expect_layer("appnp", nn::APPNPConv({.k = 3, .alpha = 0.2}), looped_);
  for (const bool is_shared : {false, true}) {
    expect(
        is_shared ? "gcn2_shared" : "gcn2",
        nn::GCN2Conv(
            5, {.layer = 2, .lambda = 0.5, .project_initial_features = is_shared, .bias = false}),
        [&](auto& m) { return m->forward(looped_, x_, x_.flip(0)); });
  }
}

void PygWeights::expect_poolings() {
  const auto readout = [&](auto& m) { return m->forward(graph_, x_); };
  expect("attention", nn::GlobalAttentionPooling(Linear(5, 1), Sequential(Linear(5, 3))), readout);
  expect("set2set", nn::Set2Set(5, {.num_iterations = 2}), readout);
  expect("jumping_knowledge",
         nn::JumpingKnowledge({.mode = nn::JumpingMode::kLstm, .in_features = 5, .num_layers = 3}),
         [&](auto& m) {
           return m->forward({x_, x_.flip(0), x_.flip(1)});
         });
  const auto coarsened = [&](auto& m) { return m->forward(graph_, x_).h; };
  expect("top_k", nn::TopKPooling(5), coarsened);
  expect("sag", nn::SAGPooling(5), coarsened);
}

void PygWeights::expect_normalizations() {
  const auto in_graphs = [&](auto& m) { return m->forward(graph_, x_); };
  const auto alone = [&](auto& m) { return m->forward(x_); };
  expect("graph_norm", nn::GraphNorm(5), in_graphs);
  expect("instance_norm", nn::InstanceNorm(5, {.affine = true, .track_running_stats = true}),
         in_graphs);
  expect("batch_norm", torch::nn::BatchNorm1d(5), alone);
  expect("mlp", nn::MLP(5, 3, {.hidden_features = 6, .normalization = nn::Normalization::kBatch}),
         alone);
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("bn", bn);
    register_module("lin", lin);
  }
  std::int64_t num_layers() const { return 2; }
  at::Tensor forward_layer(std::int64_t index, const Topology& g, const at::Tensor& x) {
    if (index == 0) return bn(conv1(g, x)).relu();
    return lin(conv2(g, x).flatten(1).relu());
  }
  at::Tensor forward(const Topology& g, const at::Tensor& x) {
    return forward_layer(1, g, forward_layer(0, g, x));
  }

  nn::GraphConv conv1{5, 6};
  nn::GATConv conv2{6, 3, nn::GATConvOptions{.num_heads = 2}};
  torch::nn::BatchNorm1d bn{6};
  Linear lin{6, 2};
};
TORCH_MODULE(Net);

void PygWeights::expect_models() {
  expect_layer("gcn_model",
               nn::Model(5, 3,
                         {.kind = nn::ModelKind::kGcn,
                          .hidden_features = 6,
                          .normalization = nn::Normalization::kBatch}),
               looped_);
  expect_layer("sage_model",
               nn::Model(5, 3,
                         {.kind = nn::ModelKind::kSage,
                          .hidden_features = 6,
                          .num_layers = 3,
                          .normalization = nn::Normalization::kLayer}),
               g_);
  expect_layer("gat_model",
               nn::Model(5, 3,
                         {.kind = nn::ModelKind::kGat,
                          .hidden_features = 3,
                          .num_heads = 2,
                          .activation = [](const at::Tensor& h) { return h.relu(); },
                          .num_output_heads = 2}),
               looped_);
  expect_layer("gcn_script", nn::Model(5, 3, {.kind = nn::ModelKind::kGcn, .hidden_features = 6}),
               looped_, {{"layer0", "conv1"}, {"layer1", "conv2"}});
  expect_layer("script", Net(), looped_);
  expect_layer("script", nn::Model(Net()), looped_);  // the same module inside a Model
}

TEST_F(PygWeights, layers_and_models_compute_what_pyg_computes) {
  expect_attention_layers();
  expect_aggregation_layers();
  expect_propagation_layers();
  expect_poolings();
  expect_normalizations();
  expect_models();
  expect_all_checked();
}

}  // namespace
}  // namespace mezzo::test::trained_weights_test
