#pragma once

#include <optional>
#include <utility>

#include "mezzo/cli/serve/request_handler.h"
#include "mezzo/predict/predictor.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "train/synthetic.h"

/// Models to serve.
namespace mezzo::test {

/// A model that is trained in memory, with its data.
struct Trained {
  explicit Trained(Dataset dataset, std::optional<nn::Decoder> decoder = {})
      : data(std::move(dataset)) {
    TrainOptions options = quick_options();
    options.model = nn::ModelKind::kSage;
    options.decoder = decoder;
    options.epochs = 2;
    trained = train(data, options).trained;
  }
  Predictor predictor() const { return Predictor(trained, data); }
  cli::RequestHandler handler() const { return cli::RequestHandler(trained, data); }

  Dataset data;
  TrainedModel trained;
};

/// Of two_rings().
inline const Trained& trained_rings() {
  static const Trained trained(two_rings());
  return trained;
}

}  // namespace mezzo::test
