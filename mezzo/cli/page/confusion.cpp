#include <algorithm>
#include <cstddef>
#include <numeric>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/cli/page/pages.h"
#include "mezzo/core/error.h"
#include "mezzo/train/report/metrics.h"

namespace mezzo::cli::page {

Confusion most_frequent(const Confusion& confusion, std::size_t most) {
  const std::size_t classes = confusion.classes.size();
  if (classes <= most) return confusion;
  std::vector<std::int64_t> totals(classes);
  for (std::size_t i = 0; i < classes; ++i) {
    totals[i] = std::accumulate(confusion.counts[i].begin(), confusion.counts[i].end(), 0LL);
  }
  std::vector<std::size_t> chosen(classes);
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](std::size_t a, std::size_t b) { return totals[a] > totals[b]; });
  chosen.resize(most - 1);
  std::sort(chosen.begin(), chosen.end());
  std::vector<std::size_t> place(classes, most - 1);
  Confusion shown = {.targets = confusion.targets, .classes = {}, .counts = {}};
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    place[chosen[i]] = i;
    shown.classes.push_back(confusion.classes[chosen[i]]);
  }
  shown.classes.emplace_back("other");
  shown.counts.assign(most, std::vector<std::int64_t>(most, 0));
  for (std::size_t row = 0; row < classes; ++row) {
    for (std::size_t column = 0; column < classes; ++column) {
      shown.counts[place[row]][place[column]] += confusion.counts[row][column];
    }
  }
  return shown;
}

void Confusion::add(const Dataset& dataset, const TrainResult& run) {
  if (dataset.task().labels != LabelKind::kClass || dataset.part) return;
  if (run.stopped_by == StopReason::kInterrupted) return;
  const SplitMasks masks = dataset.split(run.split_index);
  const bool has_test = masks.test.any().item<bool>();
  const at::Tensor& mask = has_test ? masks.test : masks.val;
  if (!mask.any().item<bool>()) return;
  at::Tensor matrix;
  try {
    matrix = confusion_matrix(run.trained.logits(dataset), dataset.labels, mask);
  } catch (const NumericError&) {
    return;
  }
  const auto size = static_cast<std::size_t>(matrix.size(0));
  if (counts.empty()) {
    targets = fmt::format("{} {}s", has_test ? "test" : "validation",
                          name_of(TaskTargets{}, dataset.target));
    classes = dataset.class_names;
    for (std::size_t i = classes.size(); i < size; ++i) classes.push_back(std::to_string(i));
    counts.assign(size, std::vector<std::int64_t>(size, 0));
  }
  const auto* count = matrix.const_data_ptr<std::int64_t>();
  for (auto& row : counts) {
    for (std::int64_t& cell : row) cell += *count++;
  }
}

}  // namespace mezzo::cli::page
