// Finds particle tracks in a simulated detector: which edges between hits are parts of a track.
// Prints the test accuracy in each precision. usage: tracks [EPOCHS] [EVENTS] [SEED]
#include "tracks.h"

#include <cstdlib>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  const uint64_t seed = argc > 3 ? std::stoull(argv[3]) : 0;
  torch::manual_seed(seed);
  const mezzo::Dataset data = tracks::simulate(argc > 2 ? std::atoi(argv[2]) : 50);
  mezzo::TrainOptions options{.model = mezzo::nn::ModelKind::kSage,
                              .hidden = 64,
                              .dropout = 0,
                              .normalization = mezzo::nn::Normalization::kLayer,
                              .epochs = argc > 1 ? std::atoi(argv[1]) : 100,
                              .weight_decay = 0,
                              .seed = seed};
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    options.precision = mezzo::amp::parse_precision(precision);
    std::cout << precision << " test accuracy " << mezzo::train(data, options).best.test << '\n';
  }
}
