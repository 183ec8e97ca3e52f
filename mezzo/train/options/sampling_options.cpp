#include "mezzo/train/options/sampling_options.h"

#include <charconv>
#include <system_error>

#include "mezzo/core/error.h"
#include "mezzo/core/table.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/options/option_fields.h"
#include "mezzo/train/options/options.h"

namespace mezzo {
namespace {

void check_fields(const SamplingOptions& options) {
  const std::string_view sampler = name_of(SamplerKinds{}, options.sampler);
  fields::for_each(fields::kSampling, [&](const auto& field) {
    const bool applies = field.rules.applies == nullptr || field.rules.applies(options);
    const bool set = is_set(field, options);
    MEZZO_CHECK(applies || !set, "{}: the sampler {} has no such option", flag_of(field), sampler);
    MEZZO_CHECK(!applies || set || field.rules.needed == nullptr,
                "{}: the sampler {} requires it: {}", field.name, sampler, field.rules.needed);
    check_range(field, options);
  });
  MEZZO_CHECK(!options.parts_per_batch || *options.parts_per_batch <= *options.parts,
              "parts-per-batch: expected at most the {} parts, got {}", *options.parts,
              *options.parts_per_batch);
  MEZZO_CHECK(options.shuffle || !options.balance_classes,
              "no-shuffle: expected no balance-classes, which draws the training nodes at random");
}

void check_fanouts(const TrainOptions& options) {
  const std::vector<std::int64_t>& fanouts = options.sampling->fanouts;
  const std::string_view model = nn::to_string(options.model);
  MEZZO_CHECK(fanouts.empty() || static_cast<std::int64_t>(fanouts.size()) == options.layers,
              "fanout: expected one number for each of the {} layers, got {}", options.layers,
              fanouts.size());
  for (const std::int64_t fanout : fanouts) {
    MEZZO_CHECK(fanout >= -1, "fanout: expected numbers of at least 0, or all (-1), got {}",
                fanout);
    MEZZO_CHECK(!options.sampling->replace || (fanout >= 0 && fanout < fields::kMostDraws),
                "replace: expected fanouts of 0 to 2^31 - 1, got {}",
                fanout == -1 ? "all" : fmt::format("{}", fanout));
    MEZZO_CHECK(fanout != 0 || !nn::needs_in_edges(options.model),
                "fanout: expected at least 1 for {}, which reads only neighbours, got 0", model);
  }
}

void check_layer_sizes(const TrainOptions& options) {
  const std::vector<std::int64_t>& sizes = options.sampling->layer_sizes;
  MEZZO_CHECK(nn::takes_edge_weights(options.model),
              "sampler: layer needs a model that takes edge weights, gcn or sage, to correct its "
              "bias, got {}",
              nn::to_string(options.model));
  MEZZO_CHECK(static_cast<std::int64_t>(sizes.size()) == options.layers,
              "layer-sizes: expected one number for each of the {} layers, got {}", options.layers,
              sizes.size());
  for (const std::int64_t size : sizes) {
    MEZZO_CHECK(size >= 1 && size <= fields::kMostDraws,
                "layer-sizes: expected numbers in [1, {}], got {}", fields::kMostDraws, size);
  }
}

void check_workers(const SamplingOptions& sampling) {
  MEZZO_CHECK(!sampling.prefetch || sampling.num_workers != 0,
              "prefetch: expected no number without workers, got {} with 0 workers",
              *sampling.prefetch);
}

void check_place(const TrainOptions& options) {
  const SamplingOptions& sampling = *options.sampling;
  if (sampling.sample_on != SamplePlace::kDevice) return;
  MEZZO_CHECK(options.device.is_cuda(), "sample-on: expected a CUDA device, got {}",
              options.device.str());
  MEZZO_CHECK(sampling.sampler == SamplerKind::kNeighbor,
              "sample-on: expected the sampler neighbor, which alone draws on a device, got {}",
              name_of(SamplerKinds{}, sampling.sampler));
  MEZZO_CHECK(sampling.num_workers.value_or(0) == 0,
              "workers: expected 0 if the device draws the batches, got {}", *sampling.num_workers);
  MEZZO_CHECK(!sampling.prefetch,
              "prefetch: expected no number if the device draws the batches, got {}",
              *sampling.prefetch);
}

void check_control_variates(const TrainOptions& options) {
  if (!options.sampling->control_variates) return;
  MEZZO_CHECK(nn::takes_received_offset(options.model),
              "control-variates: expected the model gcn or sage, got {}",
              nn::to_string(options.model));
  MEZZO_CHECK(
      options.layers >= 2,
      "control-variates: expected at least 2 layers, since the activations of hidden layers "
      "are stored, got {}",
      options.layers);
  MEZZO_CHECK(options.device.is_cpu(), "control-variates: expected the device cpu, got {}",
              options.device.str());
  MEZZO_CHECK(
      options.resume.empty(),
      "resume: a run with control-variates cannot be resumed, because checkpoints do not hold "
      "stored activations; start from its weights with init");
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
              "sample-on: the graph and its features take {}, {} has {} free",
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
              "sampling: sgc propagates its features once, before training; train it on the full "
              "graph");
  check_fields(sampling);
  if (draws_by_fanouts(sampling.sampler)) check_fanouts(options);
  if (sampling.sampler == SamplerKind::kLayer) check_layer_sizes(options);
  check_control_variates(options);
  check_workers(sampling);
  check_place(options);
}

}  // namespace mezzo
