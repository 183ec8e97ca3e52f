// Two ways to write a layer: a template over frames that takes a graph or a block, and a module
// that takes any topology, as the library's layers do. Prints "agree" if a block with all
// neighbours of some nodes gives them the same rows as the full graph.
#include <iostream>

#include <mezzo/mezzo.h>

namespace fn = mezzo::fn;

// [sides]
template <class GraphOrBlock>
static torch::Tensor weighted_mean(GraphOrBlock g, const torch::Tensor& h, const torch::Tensor& w) {
  const auto scope = g.local_scope();  // the columns below go with it
  g.srcdata()["h"] = h;
  g.edata()["w"] = w;
  g.update_all(fn::u_mul_e("h", "w", "m"), fn::mean("m", "out"));
  return g.dstdata().at("out");
}
// [sides end]

// [topology]
struct MeanConvImpl : torch::nn::Module {
  MeanConvImpl(int64_t in_features, int64_t out_features) {
    linear = register_module("linear", torch::nn::Linear(2 * in_features, out_features));
  }
  torch::Tensor forward(const mezzo::Topology& g, const torch::Tensor& h) {
    mezzo::Frame src("source", g.num_src(), g.device()), edge("edge", g.num_edges(), g.device()),
        dst("destination", g.num_dst(), g.device());
    src.set("h", h);  // [num_src, in], the destinations first
    mezzo::update_all(g, src, edge, dst, fn::copy_u("h", "m"), fn::mean("m", "mean"));
    return linear(torch::cat({h.narrow(0, 0, g.num_dst()), dst.at("mean")}, 1));
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(MeanConv);
// [topology end]

int main() {
  torch::manual_seed(0);
  const mezzo::Graph g = mezzo::rand_graph(/*num_nodes=*/100, /*num_edges=*/1000);
  const torch::Tensor h = torch::rand({100, 8}), w = torch::rand({1000, 1});
  const torch::Tensor nodes = torch::arange(20, 30);
  const mezzo::Block block = mezzo::to_block(g, g.in_edges(nodes), nodes);
  const torch::Tensor rows = h.index_select(0, block.src_nodes());
  const torch::Tensor weights = w.index_select(0, block.parent_edges());

  MeanConv layer(8, 4);
  const auto agree = [&](const torch::Tensor& part, const torch::Tensor& whole) {
    return torch::allclose(part, whole.index_select(0, nodes), /*rtol=*/1e-4, /*atol=*/1e-5);
  };
  const bool same = agree(weighted_mean(block, rows, weights), weighted_mean(g, h, w)) &&
                    agree(layer(block, rows), layer(g, h));
  std::cout << (same ? "agree" : "differ") << '\n';
}
