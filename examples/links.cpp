// Learns which nodes of a data set have an edge between them. For each precision prints the ROC AUC
// of the test links and the share of them that are ranked among the first ten.
// usage: links DATA [EPOCHS]
#include <cstdlib>
#include <iostream>
#include <string>

#include <mezzo/mezzo.h>

int main(int argc, char** argv) {
  const mezzo::Task task{mezzo::TaskTarget::kLink, mezzo::LabelKind::kMultiLabel};
  mezzo::TrainOptions options{.model = mezzo::nn::ModelKind::kGcn,
                              .hidden = 64,
                              .dropout = 0.5,
                              .epochs = argc > 2 ? std::atoi(argv[2]) : 200,
                              .weight_decay = 0};
  options.decoder = mezzo::nn::Decoder::kDot;
  options.eval_every = 10;
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    options.precision = mezzo::amp::parse_precision(precision);
    std::cout << precision;
    for (const mezzo::Metric metric : {mezzo::Metric::kRocAuc, mezzo::Metric::kHitsAt10}) {
      const mezzo::Dataset data = mezzo::load_dataset(argv[1], {.task = task, .metric = metric});
      std::cout << ' ' << mezzo::metric_name(metric) << ' '
                << mezzo::train(data, options).best.test;
    }
    std::cout << '\n';
  }
}
