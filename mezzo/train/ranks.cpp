#include "mezzo/train/ranks.h"

#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/dist/data_parallel.h"
#include "mezzo/train/clock.h"

namespace mezzo {

template <class Communicate>
void Ranks::timed(const Communicate& communicate) {
  if (alone()) return;
  const Clock::time_point start = Clock::now();
  communicate();
  seconds_ += seconds_since(start);
}

void Ranks::check_same(const std::string& what, const std::string& text) {
  timed([&] {
    const std::vector<std::int64_t> others = group_.ranks_that_differ(text);
    MEZZO_CHECK(others.empty(), "train: {} of rank {} differ from those of rank 0", what,
                fmt::join(others, ", "));
  });
}

TrainingNodes Ranks::share_of(const TrainingNodes& nodes, std::uint64_t seed) const {
  if (alone()) return nodes;
  MEZZO_CHECK(nodes.rows.numel() >= world_size(),
              "train: expected at least one training node for each of the {} processes, got {}",
              world_size(), nodes.rows.numel());
  // Shuffled, since data sets often have their nodes class by class.
  const at::Tensor places = dist::split(at::arange(nodes.rows.numel(), nodes.rows.options()),
                                        group_, {.shuffle = true, .seed = seed});
  return {.rows = nodes.rows.index_select(0, places),
          .labels = nodes.labels.index_select(0, places)};
}

std::uint64_t Ranks::seed_of_draws(std::uint64_t seed) const {
  return is_first() ? seed : random_bits(seed, static_cast<std::uint64_t>(group_.rank()), 0);
}

void Ranks::seed_step(std::uint64_t seed, std::int64_t step) const {
  if (alone()) return;
  at::manual_seed(random_bits(seed, static_cast<std::uint64_t>(group_.rank()),
                              static_cast<std::uint64_t>(step) + 1));
}

std::string Ranks::from_first(const std::string& text) {
  std::string received = text;
  timed([&] {
    at::Tensor size = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong).to(device_);
    group_.broadcast(size);
    received.resize(static_cast<std::size_t>(size.item<std::int64_t>()));
    const at::Tensor bytes =
        at::from_blob(received.data(), {static_cast<std::int64_t>(received.size())}, at::kByte);
    const at::Tensor sent = bytes.to(device_);
    group_.broadcast(sent);
    if (!device_.is_cpu()) bytes.copy_(sent);
  });
  return received;
}

Scores Ranks::from_first(const Scores& scores) {
  Scores received = scores;
  timed([&] {
    at::Tensor numbers = at::zeros({3}, at::kDouble);
    auto* number = numbers.mutable_data_ptr<double>();
    number[0] = scores.train;
    number[1] = scores.val;
    number[2] = scores.test;
    const at::Tensor sent = numbers.to(device_);
    group_.broadcast(sent);
    numbers = sent.cpu();
    number = numbers.mutable_data_ptr<double>();
    received = {.train = number[0], .val = number[1], .test = number[2]};
  });
  return received;
}

void Ranks::share_weights(torch::nn::Module& module) {
  timed([&] { dist::broadcast_parameters(module, group_); });
}

void Ranks::reduce_gradients(const torch::nn::Module& module) {
  timed([&] { dist::all_reduce_gradients(module.parameters(), group_); });
}

Ranks::Totals Ranks::total(const Totals& own) {
  Totals totals = own;
  timed([&] {
    at::Tensor numbers = at::zeros({3}, at::kDouble);
    auto* number = numbers.mutable_data_ptr<double>();
    number[0] = own.loss_sum;
    number[1] = own.weight;
    number[2] = own.stop ? 1 : 0;
    const at::Tensor sums = numbers.to(device_);
    group_.all_reduce(sums, dist::ReduceOp::kSum);
    numbers = sums.cpu();
    number = numbers.mutable_data_ptr<double>();
    totals = {.loss_sum = number[0], .weight = number[1], .stop = number[2] > 0};
  });
  return totals;
}

}  // namespace mezzo
