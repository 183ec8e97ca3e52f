// g-SpMM (copy_u, sum) forward and backward on an R-MAT graph, against libtorch's CSR product with
// a cached transpose and a hand-written gradient. usage: spmm [scale] [edges] [rounds] Every
// contender's result is compared once with the first one's before anything is timed.
#include <cstdlib>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "mezzo/graph/transforms.h"
#include "mezzo/message_passing/ops.h"

#include "support/rounds.h"

namespace {

using mezzo::bench::Contender;

/// A matrix of ones with the graph's structure, [rows, columns] by `rows` of the adjacency.
at::Tensor csr_matrix(const mezzo::Adjacency& rows, std::int64_t columns) {
  const std::int64_t n = rows.indptr.size(0) - 1;
  return at::sparse_csr_tensor(rows.indptr.to(at::kInt), rows.indices.to(at::kInt),
                               at::ones({rows.indices.size(0)}), {n, columns}, at::kFloat);
}

void check(const char* name, const at::Tensor& got, const at::Tensor& expected) {
  const double error = (got - expected).abs().max().item<double>();
  const double scale = expected.abs().max().item<double>();
  if (!(error <= 1e-5 * scale)) {
    std::fprintf(stderr, "%s: wrong result, off by %g of %g\n", name, error, scale);
    std::exit(1);
  }
}

void compare(const mezzo::Graph& g, std::int64_t width, int rounds) {
  const mezzo::Topology& t = g.topology();
  const at::Tensor x = at::randn({t.num_src(), width}), dy = at::randn({t.num_dst(), width});
  const at::Tensor forward = csr_matrix(t.csc(), t.num_src());
  const at::Tensor backward = csr_matrix(t.csr(), t.num_dst());
  const auto spmm = [](const mezzo::Topology& topology, const at::Tensor& h) {
    return mezzo::gspmm(topology, mezzo::BinaryOp::kCopyLhs, mezzo::ReduceOp::kSum, h,
                        std::nullopt);
  };
  check("forward", spmm(t, x), forward.mm(x));
  check("backward", spmm(t.reverse(), dy), backward.mm(dy));

  const at::Tensor leaf = x.clone().requires_grad_();
  const at::Tensor leaf_bf16 = x.to(at::kBFloat16).requires_grad_();
  const at::Tensor dy_bf16 = dy.to(at::kBFloat16);
  const auto step = [&](const at::Tensor& input, const at::Tensor& grad) {
    input.mutable_grad() = at::Tensor();
    spmm(t, input).backward(grad);
  };
  std::vector<Contender> contenders = {
      {"torch CSR, cached transpose", [&] { forward.mm(x), backward.mm(dy); }},
      {"mezzo float32", [&] { step(leaf, dy); }},
      {"mezzo bfloat16", [&] { step(leaf_bf16, dy_bf16); }}};
  mezzo::bench::interleave(contenders, rounds);
  mezzo::bench::print("copy_u sum, forward+backward, F=" + std::to_string(width), contenders);
}

}  // namespace

int main(int argc, char** argv) {
  const int scale = argc > 1 ? std::atoi(argv[1]) : 17;
  const std::int64_t edges = argc > 2 ? std::atoll(argv[2]) : std::int64_t{1} << 21;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 7;
  at::manual_seed(0);
  const mezzo::Graph g = mezzo::rmat_graph(scale, edges);
  std::printf("R-MAT, %lld nodes, %lld edges, %d threads\n", static_cast<long long>(g.num_nodes()),
              static_cast<long long>(g.num_edges()), at::get_num_threads());
  for (const std::int64_t width : {32, 64, 128, 256}) compare(g, width, rounds);
}
