// Classifies graphs made of images: a node for each pixel that is not dark, an edge between
// neighbours. Prints the test accuracy in each precision.
// usage: image_graphs FOLDER_OF_IDX_FILES [EPOCHS] [IMAGES] [SEED]
#include <cstdlib>
#include <iostream>
#include <string>

#include <mezzo/mezzo.h>

using torch::Tensor;

// images: float32 [N, 1, 28, 28]. Averages 2 x 2 pixels first.
static mezzo::Dataset graphs_of(const mezzo::ImageDataset& images) {
  const Tensor pixels = torch::avg_pool2d(images.images, 2).squeeze(1);
  const int64_t count = pixels.size(0), side = pixels.size(1);
  const Tensor is_node = pixels > pixels.amax({1, 2}, /*keepdim=*/true) * 0.1;
  const Tensor id = torch::where(is_node.flatten(), is_node.flatten().cumsum(0) - 1, -1)
                        .view({count, side, side});
  // Edges between neighbours; a border of missing nodes (-1) surrounds each image.
  const Tensor framed = torch::constant_pad_nd(id, {1, 1, 1, 1}, -1);
  std::vector<Tensor> sources, destinations;
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t column = 0; column < 3; ++column) {
      if (row == 1 && column == 1) continue;
      const Tensor other = framed.slice(1, row, row + side).slice(2, column, column + side);
      const Tensor both = (id >= 0) & (other >= 0);
      sources.push_back(other.masked_select(both));
      destinations.push_back(id.masked_select(both));
    }
  }
  mezzo::Dataset data;
  data.name = "images";
  data.num_nodes = is_node.sum().item<int64_t>();
  data.src = torch::cat(sources);
  data.dst = torch::cat(destinations);
  const Tensor place = is_node.nonzero();
  const Tensor position = place.narrow(1, 1, 2).to(torch::kFloat) / side;
  data.features = torch::cat({pixels.masked_select(is_node).unsqueeze(1), position}, 1);
  data.graph_offsets = torch::cat({torch::zeros({1}, torch::kLong), is_node.sum({1, 2}).cumsum(0)});
  data.target = mezzo::TaskTarget::kGraph;
  data.labels = images.labels;
  data.num_classes = images.num_classes();
  const Tensor part = torch::arange(count).remainder(5).unsqueeze(1);
  data.train_masks = part < 3;
  data.val_masks = part == 3;
  data.test_masks = part == 4;
  return data;
}

int main(int argc, char** argv) {
  const int64_t count = argc > 3 ? std::atoi(argv[3]) : 5000;
  const auto images = mezzo::load_idx(argv[1], mezzo::Split::kTrain).first(count);
  const mezzo::Dataset data = graphs_of(images);
  mezzo::TrainOptions options{.model = mezzo::nn::ModelKind::kGin,
                              .layers = 3,
                              .hidden = 64,
                              .dropout = 0,
                              .normalization = mezzo::nn::Normalization::kBatch,
                              .epochs = argc > 2 ? std::atoi(argv[2]) : 10,
                              .learning_rate = 3e-3,
                              .weight_decay = 0,
                              .seed = argc > 4 ? std::stoull(argv[4]) : 0};
  options.sampling = mezzo::SamplingOptions{.batch_size = 64};
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    options.precision = mezzo::amp::parse_precision(precision);
    std::cout << precision << " test accuracy " << mezzo::train(data, options).best.test << '\n';
  }
}
