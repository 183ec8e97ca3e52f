#include "mezzo/train/processes.h"

#include <exception>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/dist/rendezvous/failure.h"
#include "mezzo/dist/sync_batch_norm.h"
#include "mezzo/train/clock.h"
#include "mezzo/train/files/tensor_hash.h"

namespace mezzo {
namespace {

std::string facts_of(const Dataset& dataset) {
  if (const std::optional<DatasetPart>& part = dataset.part) {
    return fmt::format("{} {} {} {} {} parts {} hops {}", dataset.name, part->num_nodes,
                       part->num_edges, dataset.num_features(), dataset.num_classes,
                       part->num_parts, part->hops);
  }
  return fmt::format("{} {} {} {} {}", dataset.name, dataset.num_nodes, dataset.num_edges(),
                     dataset.num_features(), dataset.num_classes);
}

}  // namespace

template <class Communicate>
void Processes::timed(const Communicate& communicate) {
  if (alone()) return;
  const Clock::time_point start = Clock::now();
  communicate();
  seconds_ += seconds_since(start);
}

void Processes::check_same(const std::string& what, const std::string& text) {
  timed([&] {
    const std::vector<std::int64_t> others = group_.ranks_that_differ(text);
    MEZZO_CHECK(others.empty(), "train: {} of rank {} differ from those of rank 0", what,
                fmt::join(others, ", "));
  });
}

void Processes::check_same_data(const Dataset& dataset) {
  check_same("the data", facts_of(dataset));
  if (alone() || dataset.part) return;
  for (const auto& [name, hash] : content_hashes(dataset)) check_same("the " + name, hash);
}

TrainingRows Processes::share_of(const TrainingRows& rows, std::uint64_t seed) const {
  if (alone()) return rows;
  MEZZO_CHECK(rows.rows.numel() >= world_size(),
              "train: expected at least one row to train on for each of the {} processes, got {}",
              world_size(), rows.rows.numel());
  // Shuffled, since data sets often list their rows class by class.
  const at::Tensor positions = dist::split(at::arange(rows.rows.numel(), rows.rows.options()),
                                           group_, {.shuffle = true, .seed = seed});
  return {.rows = rows.rows.index_select(0, positions),
          .labels = rows.labels.index_select(0, positions)};
}

TrainingRows Processes::padded(const TrainingRows& nodes) {
  const std::int64_t own = nodes.rows.numel();
  const auto most = static_cast<std::int64_t>(largest(static_cast<double>(own)));
  const at::Tensor positions = at::arange(most, nodes.rows.options()).remainder_(own);
  return {.rows = nodes.rows.index_select(0, positions),
          .labels = nodes.labels.index_select(0, positions)};
}

std::uint64_t Processes::sampler_seed(std::uint64_t seed) const {
  return is_first() ? seed : random_bits(seed, static_cast<std::uint64_t>(index()), 0);
}

void Processes::seed_step(std::uint64_t seed, std::int64_t step) const {
  if (alone()) return;
  at::manual_seed(
      random_bits(seed, static_cast<std::uint64_t>(index()), static_cast<std::uint64_t>(step) + 1));
}

void Processes::together(const std::function<void()>& work) {
  if (alone()) return work();
  std::exception_ptr exception;
  dist::detail::Failure failure;
  try {
    work();
  } catch (...) {
    exception = std::current_exception();
    failure = dist::detail::current_failure();
  }
  std::int64_t first = world_size();  // the first that failed
  std::string message;
  try {
    timed([&] {
      const at::Tensor own = at::full({1}, exception ? world_size() - index() : 0, at::kLong);
      const at::Tensor largest = own.to(device_);
      group_.all_reduce(largest, dist::ReduceOp::kMax);
      first -= largest.item<std::int64_t>();
    });
    if (first == world_size()) return;
    // The first character is the kind.
    message = from(first, static_cast<char>(failure.kind) + failure.text);
  } catch (const IoError&) {
    if (!exception) throw;
    dist::detail::forget_failure_of_another();  // the own exception says more
  }
  if (exception) std::rethrow_exception(exception);
  dist::detail::raise_failure(
      {.kind = static_cast<dist::detail::FailureKind>(message.front()), .text = message.substr(1)},
      first);
}

void Processes::give_up() const {
  if (!alone()) group_.give_up(dist::detail::current_failure().text);
}

std::string Processes::from(std::int64_t root, const std::string& text) {
  std::string received = text;
  timed([&] {
    at::Tensor size = at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong).to(device_);
    group_.broadcast(size, root);
    received.resize(static_cast<std::size_t>(size.item<std::int64_t>()));
    const at::Tensor bytes =
        at::from_blob(received.data(), {static_cast<std::int64_t>(received.size())}, at::kByte);
    const at::Tensor sent = bytes.to(device_);
    group_.broadcast(sent, root);
    if (!device_.is_cpu()) bytes.copy_(sent);
  });
  return received;
}

Scores Processes::from_first(const Scores& scores) {
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

std::vector<double> Processes::sums(const std::vector<double>& own) {
  std::vector<double> totals = own;
  timed([&] {
    at::Tensor numbers = at::tensor(own, at::kDouble).to(device_);
    group_.all_reduce(numbers, dist::ReduceOp::kSum);
    numbers = numbers.cpu();
    const auto* number = numbers.const_data_ptr<double>();
    totals.assign(number, number + own.size());
  });
  return totals;
}

double Processes::largest(double own) {
  double result = own;
  timed([&] { result = group_.all_reduce(own, dist::ReduceOp::kMax); });
  return result;
}

Scores Processes::mean(const Scores& own, const Scores& counts) {
  const auto hits = [](double score, double count) { return count > 0 ? score * count : 0; };
  const std::vector<double> totals =
      sums({hits(own.train, counts.train), counts.train, hits(own.val, counts.val), counts.val,
            hits(own.test, counts.test), counts.test});
  return {.train = totals[0] / totals[1],  // 0 / 0 is NaN
          .val = totals[2] / totals[3],
          .test = totals[4] / totals[5]};
}

nn::NormalizationFactory Processes::batch_normalization() const {
  if (alone()) return {};
  return dist::sync_batch_normalization(group_);
}

void Processes::share_weights(torch::nn::Module& module) {
  timed([&] { dist::broadcast_parameters(module, group_); });
}

bool Processes::exchange(const torch::nn::Module& module, LossTotals& totals, bool stop,
                         dist::GradientTraffic traffic, const std::function<void()>& meanwhile) {
  at::Tensor numbers = at::tensor({totals.loss_sum, totals.weight, stop ? 1.0 : 0.0}, at::kFloat);
  double meanwhile_seconds = 0;
  const auto timed_meanwhile = [&] {
    if (!meanwhile) return;
    const Clock::time_point start = Clock::now();
    meanwhile();
    meanwhile_seconds = seconds_since(start);
  };
  timed([&] {
    numbers = numbers.to(device_);
    dist::all_reduce_gradients(
        module.parameters(), group_,
        {.traffic = traffic, .beside = numbers, .meanwhile = timed_meanwhile});
    numbers = numbers.cpu();
  });
  seconds_ -= meanwhile_seconds;
  const auto* number = numbers.const_data_ptr<float>();
  totals = {.loss_sum = number[0], .weight = number[1]};
  return number[2] > 0;
}

}  // namespace mezzo
