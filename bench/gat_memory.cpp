// Peak tensor memory of one training step of a GAT layer (4 heads of 64) on an R-MAT graph, beside
// the size an E x H x F tensor would have. usage: gat_memory [scale] [edges]
#include <cstdlib>

#include <ATen/ATen.h>

#include "mezzo/amp/precision.h"
#include "mezzo/graph/transforms.h"
#include "mezzo/message_passing/memory.h"
#include "mezzo/nn/gat_conv.h"

#include "support/rounds.h"

int main(int argc, char** argv) {
  const int scale = argc > 1 ? std::atoi(argv[1]) : 17;
  const std::int64_t edges = argc > 2 ? std::atoll(argv[2]) : std::int64_t{1} << 21;
  constexpr std::int64_t kHeads = 4, kWidth = 64;
  const mezzo::Graph g = mezzo::add_self_loop(mezzo::rmat_graph(scale, edges));
  g.topology().csr();  // the structure is built once and is no part of a step
  g.topology().csc();
  mezzo::nn::GATConv layer(mezzo::nn::GATConvOptions{
      .in_features = kHeads * kWidth, .out_features = kWidth, .num_heads = kHeads});
  const at::Tensor x = at::randn({g.num_nodes(), kHeads * kWidth});
  const auto megabytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  for (const auto precision : {mezzo::amp::Precision::kFloat32, mezzo::amp::Precision::kBFloat16,
                               mezzo::amp::Precision::kFloat16}) {
    std::int64_t peak = 0;
    std::vector<mezzo::bench::Contender> step = {
        {std::string(mezzo::amp::to_string(precision)), [&] {
           layer->zero_grad();
           mezzo::reset_peak_memory(at::kCPU);
           const std::int64_t before = mezzo::current_memory_bytes(at::kCPU);
           at::Tensor loss;
           {
             const mezzo::amp::PrecisionScope scope(precision, at::kCPU);
             loss = layer(g, x).sum();
           }
           loss.backward();
           peak = mezzo::peak_memory_bytes(at::kCPU) - before;
         }}};
    mezzo::bench::interleave(step, 3);
    mezzo::bench::print("GAT step, 4 x 64", step);
    std::printf("  peak above the inputs %.0f MiB; one E x H x F tensor would be %.0f MiB\n",
                megabytes(peak),
                megabytes(g.num_edges() * kHeads * kWidth *
                          (precision == mezzo::amp::Precision::kFloat32 ? 4 : 2)));
  }
}
