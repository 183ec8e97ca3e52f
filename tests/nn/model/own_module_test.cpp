#include <string>

#include "mezzo/nn/model/inference.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/sampling/blocks/block_sampler.h"

#include "support/nn_reference.h"

namespace mezzo::test::own_module_test {
namespace {

constexpr std::int64_t kNodes = 6, kEdges = 9;

Topology topology() {
  const at::Tensor edge = at::arange(kEdges).to(test_device());
  return Topology::from_coo(edge.remainder(kNodes), (2 * edge + 1).remainder(kNodes), kNodes,
                            kNodes);
}

/// The sum of the edge rows at each destination, added to its row.
struct EdgeSumsImpl : torch::nn::Module {
  std::int64_t num_layers() const { return 2; }
  at::Tensor forward_layer(std::int64_t /*index*/, const Topology& g, const at::Tensor& h,
                           const at::Tensor& edge_rows) {
    return h.narrow(0, 0, g.num_dst()) +
           gspmm(g, BinaryOp::kCopyRhs, ReduceOp::kSum, {}, edge_rows);
  }
};
TORCH_MODULE(EdgeSums);

/// The same on a whole graph.
struct WholeImpl : torch::nn::Module {
  at::Tensor forward(const nn::ModelInput& input, const at::Tensor& h) {
    const Topology& g = *input.topology();
    return layers->forward_layer(1, g, layers->forward_layer(0, g, h, input.edge_rows()),
                                 input.edge_rows());
  }
  EdgeSums layers;
};
TORCH_MODULE(Whole);

struct LinearHeadImpl : torch::nn::Module {
  torch::nn::Linear head{nullptr};
};
struct SequentialHeadImpl : torch::nn::Module {
  torch::nn::Sequential head;
};
struct HeadedImpl : torch::nn::Module {
  nn::Head head{nullptr};
};

static_assert(nn::LayeredModule<EdgeSumsImpl> && !nn::GraphModule<EdgeSumsImpl>);
static_assert(nn::GraphModule<WholeImpl> && !nn::LayeredModule<WholeImpl>);
static_assert(nn::HasHead<HeadedImpl> && !nn::HasHead<LinearHeadImpl>);
static_assert(!nn::HasHead<SequentialHeadImpl> && !nn::HasHead<WholeImpl>);
static_assert(!nn::GraphModule<nn::ModelImpl> && !nn::LayeredModule<nn::ModelImpl>);
static_assert(!nn::GraphModule<torch::nn::SequentialImpl> && !nn::GraphModule<HeadedImpl>);
static_assert(!std::is_convertible_v<torch::nn::Linear, nn::Model>);

at::Tensor rows(std::int64_t count, std::uint64_t seed) {
  return uniform({count, 2}, at::kDouble, seed);
}

TEST(OwnModule, reads_edge_rows_of_graphs_blocks_and_in_batches) {
  const at::Tensor x = rows(kNodes, 1), e = rows(kEdges, 2);
  nn::Model layered = EdgeSums(), whole = Whole();
  const at::Tensor sums = x.index_add(0, topology().dst().to(at::kLong), 2 * e);
  EXPECT_TRUE(near_terms(layered->forward({topology(), e}, x), sums, 100));
  EXPECT_TRUE(near_terms(whole->forward({topology(), e}, x), sums, 100));
  if (!test_device().is_cpu()) return;
  for (const std::int64_t batch_size : {1, 4, 100}) {
    const InferenceOptions options{.batch_size = batch_size, .edge_rows = e};
    EXPECT_TRUE(near_terms(inference(layered, topology(), x, options), sums, 100));
    EXPECT_TRUE(near_terms(inference(whole, topology(), x, options), sums, 100));
  }
  Blocks blocks = BlockSampler(topology(), {.fanouts = {kAllNeighbors, kAllNeighbors}})
                      .sample(at::tensor({4, 1}, at::kLong), BatchKey{});
  for (Block& block : blocks) block.edata()["e"] = e.index_select(0, block.parent_edges());
  const at::Tensor sources = x.index_select(0, blocks.front().src_nodes().to(at::kLong));
  EXPECT_TRUE(near_terms(layered->forward({blocks, "e"}, sources),
                         sums.index_select(0, at::tensor({4, 1}, at::kLong)), 100));
  EXPECT_THROWS(InvalidArgument,
                "expected a whole graph for a module without forward_layer(), got 2 blocks",
                whole->forward(blocks, sources));
}

TEST(OwnModule, checks_the_edge_rows_and_what_runs) {
  const at::Tensor x = rows(kNodes, 1), e = rows(kEdges, 2);
  nn::Model layered = EdgeSums(), whole = Whole();
  for (nn::Model model : {layered, whole}) {
    EXPECT_EQ(nn::to_string(model->options.kind), "own");
    EXPECT_TRUE(mentions(error_of([&] {
                           model->forward({topology(), e.slice(0, 1)}, x);
                         }),
                         "Model:expectedfeaturesoftheedges[9,...],got"));
  }
  EXPECT_THROWS(InvalidArgument,
                "expected a module with forward_layer(), got one that runs on whole graphs",
                whole->forward_layer(0, topology(), x));
}

}  // namespace
}  // namespace mezzo::test::own_module_test
