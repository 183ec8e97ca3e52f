#include "mezzo/cli/sampling_arguments.h"

#include <cstdint>
#include <string>
#include <vector>

namespace mezzo::cli {
namespace {

/// Options of which each makes the sampling options where there are none yet.
class SamplingGroup {
 public:
  SamplingGroup(CLI::App& app, std::optional<SamplingOptions>& sampling, const std::string& title)
      : group_(app, title), sampling_(sampling) {}

  /// T: a number, or an optional one.
  template <class T>
  SamplingGroup& number(const std::string& flag, T SamplingOptions::*member,
                        const std::string& help) {
    using Number = typename Unwrapped<T>::Type;
    group_.value(
        flag, "N",
        [&sampling = sampling_, flag, member](const std::string& text) {
          made(sampling).*member = parse_number<Number>(flag, text);
        },
        help);
    return *this;
  }

  SamplingGroup& flag(const std::string& flag, bool SamplingOptions::*member,
                      const std::string& help) {
    group_.flag(
        flag, [&sampling = sampling_, member](bool on) { made(sampling).*member = on; }, help);
    return *this;
  }

  /// Sets the member to false.
  SamplingGroup& without(const std::string& flag, bool SamplingOptions::*member,
                         const std::string& help) {
    group_.flag(
        flag, [&sampling = sampling_, member](bool on) { made(sampling).*member = !on; }, help);
    return *this;
  }

  SamplingGroup& sampler() {
    group_.value(
        "--sampler", "NAME",
        [&sampling = sampling_](const std::string& text) {
          made(sampling).sampler = parse(SamplerKinds{}, "--sampler", text);
        },
        "How batches are drawn: " + names(SamplerKinds{}), "neighbor");
    return *this;
  }

  SamplingGroup& place() {
    group_.value(
        "--sample-on", "NAME",
        [&sampling = sampling_](const std::string& text) {
          made(sampling).sample_on = parse(SamplePlaces{}, "--sample-on", text);
        },
        "Where batches are drawn: " + names(SamplePlaces{}) +
            "; on a CUDA device: neighbor, without workers",
        "auto");
    return *this;
  }

  SamplingGroup& fanouts() {
    group_.list(
        "--fanout", "N,...",
        [&sampling = sampling_](const std::vector<std::string>& words) {
          std::vector<std::int64_t>& fanouts = made(sampling).fanouts;
          fanouts.clear();
          for (const std::string& word : words) fanouts.push_back(parse_fanout(word));
        },
        "neighbor, labor: neighbours drawn for a node, one number a layer, inputs first; or all");
    return *this;
  }

  SamplingGroup& layer_sizes() {
    group_.list(
        "--layer-sizes", "N,...",
        [&sampling = sampling_](const std::vector<std::string>& words) {
          std::vector<std::int64_t>& sizes = made(sampling).layer_sizes;
          sizes.clear();
          for (const std::string& word : words) {
            sizes.push_back(parse_number<std::int64_t>("--layer-sizes", word));
          }
        },
        "layer (gcn, sage): nodes drawn for a layer, one number a layer, inputs first");
    return *this;
  }

 private:
  static SamplingOptions& made(std::optional<SamplingOptions>& sampling) {
    if (!sampling) sampling.emplace();
    return *sampling;
  }

  OptionGroup group_;
  std::optional<SamplingOptions>& sampling_;
};

}  // namespace

void add_sampling_options(CLI::App& app, std::optional<SamplingOptions>& sampling,
                          const std::string& title) {
  SamplingGroup(app, sampling, title)
      .number("--batch-size", &SamplingOptions::batch_size,
              "neighbor, labor, layer: train by mini-batches of N training nodes")
      .fanouts()
      .layer_sizes()
      .sampler()
      .flag("--replace", &SamplingOptions::replace, "neighbor: draw neighbours with replacement")
      .flag("--layer-dependency", &SamplingOptions::layer_dependency,
            "labor: draw alike in all layers of a batch")
      .flag("--drop-last", &SamplingOptions::drop_last,
            "neighbor, labor, layer: leave out a last batch that is not full")
      .flag("--balance-classes", &SamplingOptions::balance_classes,
            "neighbor, labor, layer: draw training nodes of every class equally often")
      .without("--no-shuffle", &SamplingOptions::shuffle,
               "neighbor, labor, layer, cluster: training nodes, or parts, in the same order each "
               "epoch")
      .number("--parts", &SamplingOptions::parts, "cluster: parts that the graph is cut into")
      .number("--parts-per-batch", &SamplingOptions::parts_per_batch,
              "cluster: parts of a batch (default: 1)")
      .number("--saint-budget", &SamplingOptions::saint_budget,
              "saint-node, saint-edge, saint-walk: nodes, edges or walks drawn for a batch")
      .number("--walk-length", &SamplingOptions::walk_length,
              "saint-walk: steps of a walk (default: 2)")
      .number("--batches-per-epoch", &SamplingOptions::batches_per_epoch,
              "saint: batches of an epoch (default: as many as draw each node about once)")
      .place()
      .number("--workers", &SamplingOptions::num_workers,
              "Threads that prepare batches; 0: the trainer's own (default: 1; where the device "
              "draws: 0)")
      .number("--prefetch", &SamplingOptions::prefetch,
              "Batches ready or in work for each worker, if there is one (default: 2)")
      .number("--inference-batch-size", &SamplingOptions::inference_batch_size,
              "Nodes of a batch when all nodes are evaluated (default: 4096)");
}

}  // namespace mezzo::cli
