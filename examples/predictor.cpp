// Inference beside a changing graph: threads ask a Predictor while edges come and go, and its
// results have the bits of one that is made from the present graph. argv: data set, epochs.
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <mezzo/mezzo.h>

namespace nn = mezzo::nn;

int main(int argc, char** argv) {
  mezzo::Dataset data = mezzo::load_dataset(argv[1]);
  data.features = data.features.to_dense();  // some of its rows are used below
  const int epochs = argc > 2 ? std::stoi(argv[2]) : 20;
  const mezzo::TrainedModel trained =
      mezzo::train(data, {.model = nn::ModelKind::kSage, .hidden = 64, .epochs = epochs}).trained;

  // [predictor]
  mezzo::Predictor predictor(trained, data, {.resident = true});
  const torch::Tensor node = torch::tensor({7});
  const torch::Tensor logits = predictor.predict(node);                          // [1, classes]
  const torch::Tensor estimate = predictor.predict(node, {.fanouts = {10, 5}});  // of a sample
  // [predictor end]

  std::vector<std::thread> readers;  // any number may ask at the same time
  for (int first = 0; first < 4; ++first) {
    readers.emplace_back([&predictor, first] {
      for (int i = 0; i < 100; ++i) predictor.predict(torch::tensor({first + i, first}));
    });
  }
  // [updates]
  predictor.add_edges(torch::tensor({3, 14}), torch::tensor({7, 7}));
  predictor.set_features(torch::tensor({15}), data.features.index_select(0, torch::tensor({92})));
  const int64_t added = predictor.add_nodes(data.features.index_select(0, torch::tensor({65})));
  predictor.add_edges(torch::tensor({added}), torch::tensor({7}));
  predictor.remove_edges(torch::tensor({3}), torch::tensor({7}));
  // [updates end]
  for (std::thread& reader : readers) reader.join();

  mezzo::Dataset present = data;  // the same changes
  const torch::Tensor last = torch::tensor({int64_t{14}, added}), seven = torch::tensor({7, 7});
  present.num_nodes = added + 1;
  present.src = torch::cat({data.src, last});
  present.dst = torch::cat({data.dst, seven});
  present.features =
      torch::cat({data.features, data.features.index_select(0, torch::tensor({65}))});
  present.features[15] = data.features[92];
  const mezzo::Predictor fresh(trained, present);
  std::cout << (predictor.predict().equal(fresh.predict()) ? "same bits\n" : "other bits\n")
            << (logits.equal(predictor.predict(node)) ? "node 7 is as before\n"
                                                      : "node 7 has changed\n")
            << "an estimate of it: " << estimate.argmax().item<int64_t>() << '\n';
}
