// Dense products of layers: first, hidden and last layers, layers on a mini-batch, and two small
// ones on either side of the size limit above which float32 may use another library.
#include <array>

#include "bench/cases/layers.h"
#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

constexpr std::array kSizes = {
    ProductSize{131072, 602, 256}, ProductSize{131072, 256, 256}, ProductSize{34493, 8415, 256},
    ProductSize{131072, 256, 41},  ProductSize{512, 602, 256},    ProductSize{2048, 256, 256},
    ProductSize{512, 256, 41},     ProductSize{512, 64, 64},      ProductSize{2048, 64, 64}};

void run(Bench& bench) {
  bench.begin();
  for (const ProductSize& size : kSizes) {
    for (const Pass pass : {Pass::kForward, Pass::kForwardBackward}) {
      bench.run(dense_product(size, bench.arguments.precisions, pass));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      {.name = "linear", .description = "Dense products in 16 bits beside libtorch's", .run = run},
      argc, argv);
}
