// Trains the network of 07_cnn_mixed_precision.cpp in one precision or in all four, and measures
// the accuracy on the test images after each epoch. Prints the report that `mezzo train` prints,
// and a comparison of the runs. usage: cnn FOLDER_OF_IDX_FILES [EPOCHS]
// [fp32|tf32|bf16|fp16|all] [IMAGES OF EACH PART, 0: ALL] [SEED]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <mezzo/mezzo.h>

#include "network.h"

namespace {

namespace amp = mezzo::amp;
using Clock = std::chrono::steady_clock;

constexpr int64_t kBatchSize = 128;

struct Options {
  int64_t epochs;
  amp::Precision precision;
  uint64_t seed;
  torch::Device device;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t count_correct(const torch::Tensor& logits, const torch::Tensor& labels) {
  return logits.argmax(1).eq(labels).sum().item<int64_t>();
}

double share(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

double test_accuracy(torch::nn::Sequential network, const mezzo::ImageDataset& test,
                     const Options& options) {
  const torch::NoGradGuard no_grad;
  network->eval();
  int64_t correct = 0;
  for (const auto& [images, labels] : test.batches(kBatchSize, /*shuffle=*/false, /*seed=*/0)) {
    const amp::PrecisionScope scope(options.precision, options.device);
    correct +=
        count_correct(network->forward(images.to(options.device)), labels.to(options.device));
  }
  return share(correct, test.size());
}

/// Trains one pass over the images. Returns the mean loss and the accuracy of the predictions
/// during the epoch.
std::pair<double, double> train_epoch(torch::nn::Sequential network,
                                      amp::MixedPrecisionOptimizer& optimizer,
                                      const mezzo::ImageBatches& batches, const Options& options) {
  network->train();
  double loss_sum = 0;
  int64_t correct = 0, count = 0;
  for (const mezzo::ImageBatch& batch : batches) {
    const torch::Tensor images = batch.images.to(options.device);
    const torch::Tensor labels = batch.labels.to(options.device);
    torch::Tensor logits;
    const torch::Tensor loss = optimizer.minimize([&] {
      logits = network->forward(images).to(torch::kFloat);
      return torch::nn::functional::cross_entropy(logits, labels);
    });
    loss_sum += loss.item<double>() * static_cast<double>(labels.size(0));
    correct += count_correct(logits, labels);
    count += labels.size(0);
  }
  return {loss_sum / static_cast<double>(count), share(correct, count)};
}

/// Fills in the values that the epochs do not record.
void complete(mezzo::TrainReport& report, torch::nn::Sequential network,
              const amp::MixedPrecisionOptimizer& optimizer, std::vector<double> epoch_ms,
              const Options& options) {
  report.model = "cnn";
  report.precision = amp::to_string(options.precision);
  report.device = options.device.str();
  report.metric = "accuracy";
  report.loss_scale_policy = optimizer.scaler().is_enabled() ? "dynamic" : "none";
  report.seed = options.seed;
  report.threads = torch::get_num_threads();
  for (const torch::Tensor& parameter : network->parameters()) {
    report.num_parameters += parameter.numel();
  }
  report.epochs_run = report.best_epoch = options.epochs;
  report.train_loss = report.losses.back();
  report.best = report.last = report.evaluations.back().scores;
  std::sort(epoch_ms.begin(), epoch_ms.end());
  report.epoch_ms_min = epoch_ms.front();
  report.epoch_ms_median = epoch_ms[epoch_ms.size() / 2];
  report.peak_memory_bytes = mezzo::peak_memory_bytes(options.device);
  report.steps = optimizer.steps();
  report.skipped_steps = optimizer.skipped_steps();
  report.final_loss_scale = optimizer.scaler().get_scale();
}

mezzo::TrainReport train(const mezzo::ImageDataset& training_images,
                         const mezzo::ImageDataset& test_images, const Options& options) {
  const Clock::time_point start = Clock::now();
  mezzo::reset_peak_memory(options.device);
  torch::manual_seed(options.seed);
  torch::nn::Sequential network = make_network();
  network->to(options.device);
  torch::optim::Adam adam(network->parameters(), 1e-4);
  amp::MixedPrecisionOptimizer optimizer =
      amp::enable_mixed_precision(adam, {.precision = options.precision, .device = options.device});

  mezzo::TrainReport report;
  report.dataset = training_images.name;
  std::vector<double> epoch_ms;
  for (int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    const Clock::time_point epoch_start = Clock::now();
    const uint64_t order = 1000 * options.seed + static_cast<uint64_t>(epoch);
    const auto [loss, train_accuracy] = train_epoch(
        network, optimizer, training_images.batches(kBatchSize, /*shuffle=*/true, order), options);
    if (!std::isfinite(loss)) throw mezzo::NumericError("training diverged");
    report.losses.push_back(loss);
    epoch_ms.push_back(1e3 * seconds_since(epoch_start));
    const Clock::time_point evaluation_start = Clock::now();
    const double accuracy = test_accuracy(network, test_images, options);
    report.evaluation_seconds += seconds_since(evaluation_start);
    report.evaluations.push_back({epoch, {.train = train_accuracy, .test = accuracy}});
    std::cerr << amp::to_string(options.precision) << " epoch " << epoch << " loss " << loss
              << " test accuracy " << accuracy << '\n';
  }
  complete(report, network, optimizer, std::move(epoch_ms), options);
  report.total_seconds = seconds_since(start);
  return report;
}

mezzo::ImageDataset load(const char* folder, mezzo::Split split, int64_t most) {
  const mezzo::ImageDataset images = mezzo::load_idx(folder, split);
  return most > 0 && most < images.size() ? images.first(most) : images;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t epochs = argc > 2 ? std::stoll(argv[2]) : 10;
  const std::string precision = argc > 3 ? argv[3] : "all";
  const int64_t most = argc > 4 ? std::stoll(argv[4]) : 0;
  const uint64_t seed = argc > 5 ? std::stoull(argv[5]) : 0;
  const torch::Device device = mezzo::default_device();
  const mezzo::ImageDataset training_images = load(argv[1], mezzo::Split::kTrain, most);
  const mezzo::ImageDataset test_images = load(argv[1], mezzo::Split::kTest, most);

  std::vector<amp::Precision> precisions(amp::kPrecisions.begin(), amp::kPrecisions.end());
  if (precision != "all") precisions = {amp::parse_precision(precision)};
  std::vector<mezzo::ComparisonRow> rows;
  for (const amp::Precision each : precisions) {
    const mezzo::TrainReport report =
        train(training_images, test_images,
              {.epochs = epochs, .precision = each, .seed = seed, .device = device});
    std::cout << mezzo::format_report({report}) << '\n' << std::flush;
    rows.push_back(
        {.model = report.model, .precision = report.precision, .runs = {report}, .error = {}});
  }
  std::cout << mezzo::format_comparison(rows);
}
