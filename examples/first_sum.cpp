// The first block of README.md: a weighted sum over neighbours. Prints the shape of the sums.

// [readme]
#include <iostream>

#include <mezzo/mezzo.h>

namespace fn = mezzo::fn;

int main() {
  mezzo::Graph g = mezzo::rand_graph(/*num_nodes=*/30, /*num_edges=*/100);
  g.ndata()["h"] = torch::rand({30, 16}).to(torch::kHalf);
  g.edata()["w"] = torch::rand({100, 1}).to(torch::kHalf);
  g.update_all(fn::u_mul_e("h", "w", "m"), fn::sum("m", "x"));  // one kernel, no [100, 16] message
  std::cout << g.ndata()["x"].sizes() << '\n';                  // [30, 16]
}
// [readme end]
