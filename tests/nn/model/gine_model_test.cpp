#include "mezzo/nn/model/inference.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/sampling/blocks/block_sampler.h"

#include "support/nn_reference.h"

namespace mezzo::test::gine_model_test {
namespace {

using nn::Model;
using nn::ModelInput;
using nn::ModelKind;

constexpr std::int64_t kNodes = 6, kEdges = 9;

Topology topology() {
  const at::Tensor edge = at::arange(kEdges).to(test_device());
  return Topology::from_coo(edge.remainder(kNodes), (2 * edge + 1).remainder(kNodes), kNodes,
                            kNodes);
}

Model make_model() {
  Model model(4, 3,
              {.kind = ModelKind::kGine, .hidden_features = 5, .edge_features = 2, .dropout = 0});
  randomise(*model, at::kDouble);
  return model;
}

/// W2 relu(W1 (h_v + sum of relu(h_u + W e + b))).
at::Tensor layer(const Model& model, const std::string& name, const at::Tensor& h,
                 const at::Tensor& e) {
  const auto p = model->named_parameters();
  const auto dense = [&](const at::Tensor& x, const std::string& part) {
    return dense_linear(x, p[name + part + ".weight"], p[name + part + ".bias"], Numbers::kGiven);
  };
  const Topology g = topology();
  const at::Tensor messages =
      (h.index_select(0, g.src().to(at::kLong)) + dense(e, ".edge")).clamp_min(0);
  const at::Tensor sum = h.index_add(0, g.dst().to(at::kLong), messages);
  return dense(dense(sum, ".conv.apply_func.layer0").clamp_min(0), ".conv.apply_func.layer1");
}

TEST(GineModel, adds_mapped_features_of_edges_to_the_messages) {
  Model model = make_model();
  const at::Tensor x = uniform({kNodes, 4}, at::kDouble, 1),
                   e = uniform({kEdges, 2}, at::kDouble, 2);
  const at::Tensor expected = layer(model, "layer1", layer(model, "layer0", x, e).clamp_min(0), e);
  EXPECT_TRUE(near_terms(model->forward({topology(), e}, x), expected, 1000));
}

TEST(GineModel, of_blocks_and_in_batches_agrees_with_the_whole_graph) {
  Model model = make_model();
  const at::Tensor x = uniform({kNodes, 4}, at::kDouble, 3),
                   e = uniform({kEdges, 2}, at::kDouble, 4);
  const at::Tensor whole = model->forward({topology(), e}, x);
  if (!test_device().is_cpu()) return;
  Blocks blocks = BlockSampler(topology(), {.fanouts = {kAllNeighbors, kAllNeighbors}})
                      .sample(at::tensor({4, 1}, at::kLong), BatchKey{});
  for (Block& block : blocks) block.edata()["e"] = e.index_select(0, block.parent_edges());
  const at::Tensor rows = x.index_select(0, blocks.front().src_nodes().to(at::kLong));
  EXPECT_TRUE(near_terms(model->forward({blocks, "e"}, rows),
                         whole.index_select(0, at::tensor({4, 1}, at::kLong)), 1000));
  EXPECT_TRUE(
      near_terms(inference(model, topology(), x, {.batch_size = 2, .edge_rows = e}), whole, 1000));
}

TEST(GineModel, copies_have_its_parameters) {
  Model model = make_model();
  Model copy(std::dynamic_pointer_cast<nn::ModelImpl>(model->clone()));
  const at::Tensor x = uniform({kNodes, 4}, at::kDouble, 5),
                   e = uniform({kEdges, 2}, at::kDouble, 6);
  EXPECT_TRUE(exact(copy->forward({topology(), e}, x), model->forward({topology(), e}, x)));
}

TEST(GineModel, other_features_of_edges_are_errors) {
  EXPECT_ERROR("edge_features", Model(4, 3, {.kind = ModelKind::kGine}));
  Model model = make_model();
  const at::Tensor x = uniform({kNodes, 4}, at::kDouble, 7);
  EXPECT_ERROR("[9,2]", model->forward(topology(), x));
  EXPECT_ERROR("[9,2]", model->forward({topology(), uniform({kEdges}, at::kDouble, 8)}, x));
  EXPECT_ERROR("[9,2]", model->forward({topology(), uniform({kEdges, 3}, at::kDouble, 9)}, x));
}

}  // namespace
}  // namespace mezzo::test::gine_model_test
