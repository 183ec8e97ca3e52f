#include "mezzo/train/sampling_options.h"

#include <charconv>
#include <system_error>

#include "mezzo/core/error.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/options.h"
#include "mezzo/train/report/table.h"

namespace mezzo {
namespace {

constexpr std::int64_t kMostWorkers = 256;
constexpr std::int64_t kMostPrefetch = 1024;
// Draws of one batch; what is beyond any graph would not end.
constexpr std::int64_t kMostDraws = std::int64_t{1} << 31;

/// What the checks of one run share.
class SamplingCheck {
 public:
  explicit SamplingCheck(const SamplingOptions& options) : options_(options) {}

  /// An option that only some samplers have.
  void only(bool has, bool set, std::string_view option) const {
    MEZZO_CHECK(has || !set, "{}: the sampler {} has no such option", option, word());
  }
  void at_least_one(const std::optional<std::int64_t>& value, std::string_view option) const {
    MEZZO_CHECK(!value || *value >= 1, "{}: expected at least 1, got {}", option, *value);
  }
  void at_most(const std::optional<std::int64_t>& value, std::int64_t most,
               std::string_view option) const {
    MEZZO_CHECK(!value || *value <= most, "{}: expected at most {}, got {}", option, most, *value);
  }
  void needed(bool set, std::string_view option, std::string_view what) const {
    MEZZO_CHECK(set, "{}: the sampler {} needs {}", option, word(), what);
  }

 private:
  std::string_view word() const { return name_of(SamplerKinds{}, options_.sampler); }

  const SamplingOptions& options_;
};

void check_options_of_samplers(const SamplingOptions& options) {
  const SamplingCheck check(options);
  const SamplerKind sampler = options.sampler;
  const bool blocks = draws_blocks(sampler), saint = is_saint(sampler);
  const bool by_fanouts = draws_by_fanouts(sampler), layer = sampler == SamplerKind::kLayer;
  const bool cluster = sampler == SamplerKind::kCluster;
  check.only(blocks, options.batch_size.has_value(), "batch-size");
  check.only(by_fanouts, !options.fanouts.empty(), "fanout");
  check.only(layer, !options.layer_sizes.empty(), "layer-sizes");
  check.only(sampler == SamplerKind::kNeighbor, options.replace, "replace");
  check.only(sampler == SamplerKind::kLabor, options.layer_dependency, "layer-dependency");
  check.only(blocks, options.drop_last, "drop-last");
  check.only(blocks, options.balance_classes, "balance-classes");
  check.only(blocks || cluster, !options.shuffle, "no-shuffle");
  check.only(cluster, options.parts.has_value(), "parts");
  check.only(cluster, options.parts_per_batch.has_value(), "parts-per-batch");
  check.only(saint, options.saint_budget.has_value(), "saint-budget");
  check.only(sampler == SamplerKind::kSaintWalk, options.walk_length.has_value(), "walk-length");
  check.only(saint, options.batches_per_epoch.has_value(), "batches-per-epoch");

  check.needed(!blocks || options.batch_size, "batch-size", "the training nodes of a batch");
  check.needed(!by_fanouts || !options.fanouts.empty(), "fanout",
               "the neighbours drawn for a node, one number a layer");
  check.needed(!layer || !options.layer_sizes.empty(), "layer-sizes",
               "the nodes drawn for a layer, one number a layer");
  check.needed(!cluster || options.parts, "parts", "the parts that the graph is cut into");
  check.needed(!saint || options.saint_budget, "saint-budget", "what a batch may draw");

  check.at_least_one(options.batch_size, "batch-size");
  check.at_least_one(options.parts, "parts");
  check.at_least_one(options.parts_per_batch, "parts-per-batch");
  check.at_least_one(options.saint_budget, "saint-budget");
  check.at_least_one(options.walk_length, "walk-length");
  check.at_most(options.saint_budget, kMostDraws, "saint-budget");
  check.at_most(options.walk_length, kMostDraws, "walk-length");
  check.at_least_one(options.batches_per_epoch, "batches-per-epoch");
  check.at_least_one(options.inference_batch_size, "inference-batch-size");
  MEZZO_CHECK(!options.parts_per_batch || *options.parts_per_batch <= *options.parts,
              "parts-per-batch: expected at most the {} parts, got {}", *options.parts,
              *options.parts_per_batch);
  MEZZO_CHECK(
      options.shuffle || !options.balance_classes,
      "no-shuffle: with balance-classes the training nodes are drawn, in no order of theirs");
}

void check_fanouts(const TrainOptions& options) {
  const std::vector<std::int64_t>& fanouts = options.sampling->fanouts;
  const std::string_view model = name_of(nn::ModelKinds{}, options.model);
  MEZZO_CHECK(static_cast<std::int64_t>(fanouts.size()) == options.layers,
              "fanout: expected one number for each of the {} layers, got {}", options.layers,
              fanouts.size());
  for (const std::int64_t fanout : fanouts) {
    MEZZO_CHECK(fanout >= -1, "fanout: expected numbers of at least 0, or all (-1), got {}",
                fanout);
    MEZZO_CHECK(!options.sampling->replace || (fanout >= 0 && fanout < kMostDraws),
                "replace: expected fanouts of 0 to 2^31 - 1 with it, got {}",
                fanout == -1 ? "all" : fmt::format("{}", fanout));
    MEZZO_CHECK(fanout != 0 || !nn::needs_in_edges(options.model),
                "fanout: {} computes from neighbours alone and needs at least 1, got 0", model);
  }
}

void check_layer_sizes(const TrainOptions& options) {
  const std::vector<std::int64_t>& sizes = options.sampling->layer_sizes;
  MEZZO_CHECK(nn::takes_edge_weights(options.model),
              "sampler: layer draws nodes unevenly and makes up for it by weights of the edges, "
              "which the layers of gcn and sage take and those of {} do not",
              name_of(nn::ModelKinds{}, options.model));
  MEZZO_CHECK(static_cast<std::int64_t>(sizes.size()) == options.layers,
              "layer-sizes: expected one number for each of the {} layers, got {}", options.layers,
              sizes.size());
  for (const std::int64_t size : sizes) {
    MEZZO_CHECK(size >= 1 && size <= kMostDraws, "layer-sizes: expected numbers in [1, {}], got {}",
                kMostDraws, size);
  }
}

void check_workers(const SamplingOptions& sampling) {
  const std::int64_t num_workers = sampling.num_workers.value_or(1);
  MEZZO_CHECK(num_workers >= 0 && num_workers <= kMostWorkers, "workers: expected 0 to {}, got {}",
              kMostWorkers, num_workers);
  if (!sampling.prefetch) return;
  MEZZO_CHECK(*sampling.prefetch >= 1 && *sampling.prefetch <= kMostPrefetch,
              "prefetch: expected 1 to {}, got {}", kMostPrefetch, *sampling.prefetch);
  MEZZO_CHECK(num_workers > 0,
              "prefetch: expected no number without workers, which prepare batches ahead, got {} "
              "with 0 workers",
              *sampling.prefetch);
}

void check_place(const TrainOptions& options) {
  const SamplingOptions& sampling = *options.sampling;
  if (sampling.sample_on != SamplePlace::kDevice) return;
  MEZZO_CHECK(options.device.is_cuda(),
              "sample-on: batches are drawn on a CUDA device, and the device is {}",
              options.device.str());
  MEZZO_CHECK(sampling.sampler == SamplerKind::kNeighbor,
              "sample-on: the sampler neighbor alone draws on a device, and the sampler is {}",
              name_of(SamplerKinds{}, sampling.sampler));
  MEZZO_CHECK(sampling.num_workers.value_or(0) == 0,
              "workers: expected 0 where the device draws, which needs no threads, got {}",
              *sampling.num_workers);
  MEZZO_CHECK(!sampling.prefetch,
              "prefetch: expected no number where the device draws, which prepares nothing ahead, "
              "got {}",
              *sampling.prefetch);
}

}  // namespace

bool may_draw_on_device(const TrainOptions& options) {
  const SamplingOptions& sampling = *options.sampling;
  return sampling.sample_on != SamplePlace::kHost && options.device.is_cuda() &&
         sampling.sampler == SamplerKind::kNeighbor && sampling.num_workers.value_or(0) == 0 &&
         !sampling.prefetch;
}

bool draws_on_device(const TrainOptions& options, std::int64_t needed_bytes,
                     std::int64_t free_bytes) {
  if (!may_draw_on_device(options)) return false;
  if (options.sampling->sample_on == SamplePlace::kAuto) return needed_bytes <= free_bytes / 2;
  MEZZO_CHECK(needed_bytes <= free_bytes,
              "sample-on: the graph and its features take {}, and {} has {} free",
              format_bytes(needed_bytes), options.device.str(), format_bytes(free_bytes));
  return true;
}

std::int64_t parse_fanout(std::string_view text) {
  constexpr std::int64_t kAll = -1;
  if (text == "all") return kAll;
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  MEZZO_CHECK(failure == std::errc() && end == text.data() + text.size() && value >= kAll,
              "fanout: expected numbers of at least 0, or all (-1), got '{}'", text);
  return value;
}

void check_sampling(const TrainOptions& options) {
  if (!options.sampling) return;
  const SamplingOptions& sampling = *options.sampling;
  MEZZO_CHECK(options.model != nn::ModelKind::kSgc,
              "sampling: sgc is a linear model of features that are propagated once; it is trained "
              "on the full graph");
  check_options_of_samplers(sampling);
  if (draws_by_fanouts(sampling.sampler)) check_fanouts(options);
  if (sampling.sampler == SamplerKind::kLayer) check_layer_sizes(options);
  check_workers(sampling);
  check_place(options);
}

}  // namespace mezzo
