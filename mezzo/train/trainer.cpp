#include "mezzo/train/trainer.h"

#include <utility>

#include "mezzo/core/error.h"
#include "mezzo/train/problem.h"
#include "mezzo/train/run.h"

namespace mezzo {
namespace {

/// The options of a run of that model on the data.
TrainOptions options_for(const Dataset& dataset, const nn::Model& own, TrainOptions options) {
  const TrainOptions defaults;
  MEZZO_CHECK(!own.is_empty(), "train: expected a model, got none");
  MEZZO_CHECK(options.model == defaults.model || nn::is_own(options.model),
              "model: expected the default with a model of your own, got {}",
              nn::to_string(options.model));
  const std::int64_t layers = own->num_layers();
  MEZZO_CHECK(options.layers == defaults.layers || options.layers == layers,
              "layers: expected the default or the {} layers of the model, got {}", layers,
              options.layers);
  options.model = kind_of_own(own);
  options.layers = layers;
  MEZZO_CHECK(options.model != nn::ModelKind::kOwnGraph || !options.sampling ||
                  dataset.target == TaskTarget::kGraph,
              "sampling: expected none for a module without forward_layer(), which runs on whole "
              "graphs, and labels of {}s",
              name_of(TaskTargets{}, dataset.target));
  return options;
}

}  // namespace

TrainResult train(const Dataset& dataset, const TrainOptions& options,
                  const TrainCallbacks& callbacks) {
  return Run(dataset, options, callbacks, dist::ProcessGroup()).run();
}

TrainResult train(const Dataset& dataset, const TrainOptions& options,
                  const TrainCallbacks& callbacks, const dist::ProcessGroup& group) {
  return Run(dataset, options, callbacks, group).run();
}

TrainResult train(const Dataset& dataset, nn::Model model, const TrainOptions& options,
                  const TrainCallbacks& callbacks) {
  return train(dataset, std::move(model), options, callbacks, dist::ProcessGroup());
}

TrainResult train(const Dataset& dataset, nn::Model model, const TrainOptions& options,
                  const TrainCallbacks& callbacks, const dist::ProcessGroup& group) {
  const TrainOptions own_options = options_for(dataset, model, options);
  return Run(dataset, own_options, callbacks, group, std::move(model)).run();
}

}  // namespace mezzo
