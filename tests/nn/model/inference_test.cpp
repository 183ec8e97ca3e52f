#include "mezzo/nn/model/inference.h"

#include <torch/nn/modules/dropout.h>

#include "mezzo/amp/precision.h"
#include "mezzo/graph/graph.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/ops/ops.h"
#include "mezzo/sampling/blocks/block_sampler.h"

#include "support/graphs.h"
#include "support/nn_reference.h"

namespace mezzo::test::inference_test {
namespace {

using nn::Model;
using nn::ModelKind;
using nn::Normalization;

constexpr std::int64_t kNodes = 60, kWidth = 5, kClasses = 3;

/// A model with every feature that differs between training and evaluation.
Model make(ModelKind kind, std::int64_t num_layers = 3, at::ScalarType stored = at::kDouble) {
  Model model(kWidth, kClasses,
              {.kind = kind,
               .hidden_features = 4,
               .num_layers = num_layers,
               .num_heads = 2,
               .dropout = 0.5,
               .normalization = Normalization::kBatch,
               .skip = true});
  model->to(stored);
  randomise(*model, stored, 1, at::kBFloat16);
  return model;
}

const Graph& graph(IdWidth width = IdWidth::kInt32) {
  const auto of_width = [](IdWidth id_width) {
    const Topology drawn = connected(kNodes, kNodes, 200, 1);
    return Graph::from_coo(drawn.src(), drawn.dst(), kNodes, id_width);
  };
  static const Graph int32 = of_width(IdWidth::kInt32), int64 = of_width(IdWidth::kInt64);
  return width == IdWidth::kInt32 ? int32 : int64;
}

at::Tensor features(at::ScalarType dtype = at::kDouble) {
  return uniform({kNodes, kWidth}, at::kBFloat16, 2).to(dtype);
}

/// The output on the whole graph in evaluation mode, without gradient.
at::Tensor whole(Model& model, const at::Tensor& x) {
  const bool training = model->is_training();
  model->eval();
  const at::Tensor logits = model(graph(), x).detach();
  model->train(training);
  return logits;
}

/// Allows some thousands of roundings at the size of the largest number.
testing::AssertionResult same_sums(const at::Tensor& got, const at::Tensor& expected) {
  const at::Tensor size =
      at::full(expected.sizes(), 1 + expected.abs().max().item<double>(), on_device(at::kDouble));
  return near(got, expected, sum_bound(size, 1e4, expected.scalar_type()));
}

TEST(Inference, equals_the_whole_graph_for_every_batch_size_and_layout) {
  for (const auto kind : {ModelKind::kGcn, ModelKind::kSage, ModelKind::kGat, ModelKind::kGin,
                          ModelKind::kSgc, ModelKind::kMlp}) {
    Model model = make(kind);
    const at::Tensor x = features(), sparse = sparse_numbers({kNodes, kWidth}, 3);
    const at::Tensor expected = whole(model, x), expected_of_sparse = whole(model, sparse);
    for (const std::int64_t batch_size : {1, 7, 59, 60, 4096}) {
      SCOPED_TRACE(testing::Message() << name_of(nn::ModelKinds{}, kind) << " by " << batch_size);
      for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
        const at::Tensor logits =
            inference(model, graph(width), x, {.batch_size = batch_size, .device = test_device()});
        EXPECT_TRUE(same_sums(logits, expected));
        EXPECT_FALSE(logits.requires_grad());
      }
      const at::Tensor int64_rows = sparse.to_sparse_csr();
      const at::Tensor int32_rows = at::sparse_csr_tensor(
          int64_rows.crow_indices().to(at::kInt), int64_rows.col_indices().to(at::kInt),
          int64_rows.values(), int64_rows.sizes(), int64_rows.options());
      for (const at::Tensor& rows : {int64_rows, int32_rows}) {
        EXPECT_TRUE(same_sums(
            inference(model, graph(), rows, {.batch_size = batch_size, .device = test_device()}),
            expected_of_sparse));
      }
    }
  }
}

TEST(Inference, multiplies_messages_by_edge_weights) {
  const at::Tensor x = features(),
                   weights = uniform({graph().num_edges()}, at::kBFloat16, 5).to(at::kDouble);
  for (const auto kind : {ModelKind::kGcn, ModelKind::kSage}) {
    Model model = make(kind);
    model->eval();
    const at::Tensor expected = model->forward({graph().topology(), weights}, x).detach();
    EXPECT_FALSE(at::allclose(expected, whole(model, x)));
    for (const std::int64_t batch_size : {7, 59, 4096}) {
      const at::Tensor logits = inference(
          model, graph(), x,
          {.batch_size = batch_size, .device = test_device(), .edge_rows = weights.cpu()});
      EXPECT_TRUE(same_sums(logits, expected)) << batch_size;
    }
  }
  Model gat = make(ModelKind::kGat), gcn = make(ModelKind::kGcn);
  const auto refusal = [&](Model& model, const at::Tensor& weight) {
    return error_of(
        [&] { inference(model, graph(), x, {.device = test_device(), .edge_rows = weight}); });
  };
  EXPECT_TRUE(mentions(refusal(gat, weights.cpu()), "inference:expectededge_rows["));
  EXPECT_TRUE(mentions(refusal(gcn, at::ones({3})), "inference:expectededge_rows["));
}

TEST(Inference, takes_a_topology_and_remembered_degrees) {
  Model model = make(ModelKind::kGcn);
  const Topology sample =
      graph().topology().with_parent_degrees(graph().in_degrees() + 3, graph().out_degrees() * 2);
  const at::Tensor x = features();
  EXPECT_TRUE(
      same_sums(inference(model, sample, x, {.batch_size = 7, .device = test_device()}),
                inference(model, sample, x, {.batch_size = kNodes, .device = test_device()})));
}

TEST(Inference, of_a_model_that_ignores_edges_reads_none) {
  Model model = make(ModelKind::kMlp);
  const Topology& topology = graph().topology();
  const Topology unread = Topology::from_coo(topology.src(), topology.dst(), kNodes, kNodes);
  const std::int64_t bytes = unread.memory_bytes();
  EXPECT_TRUE(
      same_sums(inference(model, unread, features(), {.batch_size = 7, .device = test_device()}),
                whole(model, features())));
  EXPECT_EQ(unread.memory_bytes(), bytes);
}

/// A model of a user, with rows of two heads between its layers.
struct OwnImpl : torch::nn::Module {
  OwnImpl() {
    dropout = register_module("dropout", torch::nn::Dropout(0.5));
    first = register_module("first", nn::GATConv(kWidth, 4, {.num_heads = 2}));
    second = register_module("second", nn::SAGEConv(8, kClasses));
  }
  std::int64_t num_layers() const { return 2; }
  at::Tensor forward_layer(std::int64_t index, const Topology& topology, const at::Tensor& h) {
    if (index == 0) return at::relu(first(topology, dropout(h)));
    return second(topology, h.flatten(1));
  }
  torch::nn::Dropout dropout{nullptr};
  nn::GATConv first{nullptr};
  nn::SAGEConv second{nullptr};
};
TORCH_MODULE(Own);

/// A module without parameters, whose layers return the means of the neighbours, or `keeps` rows.
struct MeansImpl : torch::nn::Module {
  explicit MeansImpl(std::int64_t layers, std::int64_t rows = -1) : count(layers), keeps(rows) {}
  std::int64_t num_layers() const { return count; }
  at::Tensor forward_layer(std::int64_t /*index*/, const Topology& topology, const at::Tensor& h) {
    const at::Tensor means = gspmm(topology, BinaryOp::kCopyLhs, ReduceOp::kMean, h, {});
    return keeps < 0 ? means : means.narrow(0, 0, keeps);
  }
  std::int64_t count, keeps;
};
TORCH_MODULE(Means);

TEST(Inference, of_a_module_runs_its_layers_on_all_nodes) {
  Own own;
  own->to(test_device(), at::kDouble);
  const at::Tensor x = features();
  Model model = own;
  const at::Tensor expected = whole(model, x);
  own->eval();
  const Topology& topology = graph().topology();
  const at::Tensor hidden = own->forward_layer(0, topology, x);
  EXPECT_TRUE(same_bits(expected, own->forward_layer(1, topology, hidden).detach()));
  own->train();
  for (const std::int64_t batch_size : {1, 7, 60}) {
    const at::Tensor got =
        inference(own, graph(), x, {.batch_size = batch_size, .device = test_device()});
    EXPECT_TRUE(same_sums(got, expected));
    EXPECT_FALSE(got.requires_grad());
  }
  EXPECT_TRUE(own->is_training());
  EXPECT_TRUE(own->dropout->is_training());
}

TEST(Inference, of_a_module_without_parameters_keeps_the_dtype_of_x) {
  const Means means(2);
  const at::Tensor x = features();
  const at::Tensor got = inference(means, graph(), x, {.batch_size = 7, .device = test_device()});
  EXPECT_EQ(got.scalar_type(), at::kDouble);
  EXPECT_TRUE(same_sums(got, inference(means, graph(), x, {.device = test_device()})));
}

TEST(Inference, of_a_module_checks_the_layers) {
  const at::Tensor x = features();
  const auto refusal = [&](std::int64_t num_layers, std::int64_t keeps, const at::Tensor& rows) {
    return error_of([&] {
      inference(Means(num_layers, keeps), graph(), rows,
                {.batch_size = 7, .device = test_device()});
    });
  };
  EXPECT_TRUE(mentions(refusal(2, 3, x),
                       "Model:expectedlayer0of2toreturn[7,...],onerowperdestination,got"));
  EXPECT_TRUE(mentions(refusal(0, -1, x), "Model:expectednum_layersofatleast1,got0"));
  EXPECT_TRUE(mentions(refusal(1, -1, x.slice(0, 1)), "inference:expectedfloatingh[60,5]"));
  EXPECT_TRUE(mentions(error_of([&] { inference(Own(nullptr), graph(), x); }),
                       "inference:expectedamodel,gotnone"));
}

TEST(Model, of_a_module_runs_blocks_shares_it_and_has_no_clone) {
  Own own;
  own->to(test_device(), at::kDouble);
  Model model = own;
  model->eval();
  EXPECT_FALSE(own->is_training());
  EXPECT_EQ(model->num_layers(), 2);
  EXPECT_EQ(model->parameters().size(), own->parameters().size());
  EXPECT_FALSE(model->named_parameters().contains("first.fc.weight"));
  EXPECT_TRUE(model->named_parameters().contains("own.first.fc.weight"));
  const BlockSampler sampler(graph(), {.fanouts = {kAllNeighbors, kAllNeighbors}});
  const at::Tensor seeds = at::tensor({3, 14}, on_device(at::kLong));
  Blocks blocks = sampler.sample(seeds);
  const at::Tensor rows = features().index_select(0, blocks.front().src_nodes());
  EXPECT_TRUE(
      same_sums(model(blocks, rows).detach(), whole(model, features()).index_select(0, seeds)));
  blocks.pop_back();
  EXPECT_TRUE(mentions(error_of([&] { model(blocks, rows); }), "Model:expected2blocks,"));
  const Topology& topology = graph().topology();
  EXPECT_TRUE(
      mentions(error_of([&] { model->forward_layer(0, topology, features(), {}, features()); }),
               "Model:expectednoreceived_offset"));
  EXPECT_TRUE(
      mentions(error_of([&] { model->forward_layer(0, topology, features(), topology.src()); }),
               "Model:expectednoedgeweights,whichthelayersofowndonottake"));
  EXPECT_TRUE(mentions(error_of([&] { model->clone(); }), "cannotbecloned"));
}

TEST(ModelInput, has_a_structure_for_every_layer) {
  const Topology& topology = graph().topology();
  EXPECT_TRUE(nn::ModelInput(topology).layer(5).is_same(topology));
  const Blocks blocks;
  EXPECT_ERROR("ModelInput:expectedablockforlayer0,got0blocks", nn::ModelInput(blocks).layer(0));
}

TEST(Inference, takes_nodes_without_edges_and_no_nodes) {
  for (const std::int64_t num_nodes : {0, 1, 5}) {
    Model model = make(ModelKind::kSage);
    const at::Tensor x = uniform({num_nodes, kWidth}, at::kDouble, 4);
    model->eval();
    const at::Tensor logits =
        inference(model, isolated_graph(num_nodes), x, {.batch_size = 2, .device = test_device()});
    EXPECT_EQ(logits.sizes(), at::IntArrayRef({num_nodes, kClasses}));
    if (num_nodes > 0) {
      EXPECT_TRUE(same_sums(logits, model(isolated_graph(num_nodes), x).detach()));
    }
  }
}

TEST(Inference, widens_features_to_the_dtype_of_the_model) {
  Model model = make(ModelKind::kSage, 2, at::kFloat);
  const at::Tensor x = integers({kNodes, kWidth}, at::kFloat, 5);
  for (const std::int64_t batch_size : {7, 60}) {
    const at::Tensor expected =
        inference(model, graph(), x, {.batch_size = batch_size, .device = test_device()});
    EXPECT_EQ(expected.scalar_type(), at::kFloat);
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kDouble}) {
      const at::Tensor got = inference(model, graph(), x.to(dtype),
                                       {.batch_size = batch_size, .device = test_device()});
      EXPECT_TRUE(same_bits(got, expected)) << c10::toString(dtype);
    }
  }
}

TEST(Inference, under_mixed_precision_gives_what_the_layers_give) {
  Model model = make(ModelKind::kSage, 1, at::kFloat);
  const at::Tensor x = features(at::kFloat);
  const amp::PrecisionScope scope(amp::Precision::kBFloat16, test_device());
  const at::Tensor expected = whole(model, x);
  for (const std::int64_t batch_size : {7, 60}) {
    const at::Tensor logits =
        inference(model, graph(), x, {.batch_size = batch_size, .device = test_device()});
    EXPECT_EQ(logits.scalar_type(), expected.scalar_type());
    EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
  }
}

TEST(Inference, leaves_every_part_of_the_model_in_its_mode) {
  Model model = make(ModelKind::kGcn);
  model->train();
  const auto parts = model->named_children();
  parts["norm0"]->eval();  // frozen
  const auto expect_modes = [&] {
    EXPECT_TRUE(model->is_training());
    EXPECT_TRUE(parts["layer0"]->is_training());
    EXPECT_FALSE(parts["norm0"]->is_training());
    EXPECT_TRUE(parts["norm1"]->is_training());
  };
  for (const std::int64_t batch_size : {7, 60}) {
    inference(model, graph(), features(), {.batch_size = batch_size, .device = test_device()});
    expect_modes();
    error_of([&] {  // nodes without in-edges
      inference(model, isolated_graph(kNodes), features(),
                {.batch_size = batch_size, .device = test_device()});
    });
    expect_modes();
  }
  model->eval();
  inference(model, graph(), features(), {.batch_size = 7, .device = test_device()});
  EXPECT_FALSE(model->is_training());
}

TEST(Inference, wrong_arguments_are_errors_that_name_them) {
  Model model = make(ModelKind::kSage);
  const at::Tensor x = features();
  for (const std::int64_t batch_size : {std::int64_t{0}, std::int64_t{-5}}) {
    const auto text = error_of(
        [&] { inference(model, graph(), x, {.batch_size = batch_size, .device = test_device()}); });
    EXPECT_TRUE(mentions(text, "inference:expectedabatch_sizeofatleast1,got"));
  }
  for (const at::Tensor& wrong : {x.slice(0, 1), x.slice(1, 1), x.to(at::kLong), at::Tensor()}) {
    const auto text = error_of(
        [&] { inference(model, graph(), wrong, {.batch_size = 7, .device = test_device()}); });
    EXPECT_TRUE(mentions(text, "inference:expectedfloatingh[60,5]"));
  }
  const auto two_sets =
      error_of([&] { inference(model, connected(9, 5, 20, 5), x, {.device = test_device()}); });
  EXPECT_TRUE(mentions(two_sets, "inference:expectedagraphofonesetofnodes,got9sourcesand5"));
  Model none{nullptr};
  EXPECT_ERROR("expectedamodel,gotnone", inference(none, graph(), x));
  const auto device =
      error_of([&] { inference(model, graph(), x, {.device = at::Device(at::kMeta)}); });
  EXPECT_TRUE(mentions(device, "inference:expectedaCPUorCUDAdevice,gotmeta"));
}

}  // namespace
}  // namespace mezzo::test::inference_test
