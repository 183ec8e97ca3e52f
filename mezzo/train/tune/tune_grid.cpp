#include "mezzo/train/tune/tune_grid.h"

#include <algorithm>
#include <initializer_list>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/random.h"
#include "mezzo/train/options/option_fields.h"
#include "mezzo/train/options/recipe.h"

namespace mezzo {
namespace {

/// Draws of one candidate from lists.
class GridDraws {
 public:
  GridDraws(std::uint64_t seed, std::uint64_t number) : seed_(seed), number_(number) {}

  template <class T>
  T of(std::initializer_list<T> values) {
    const std::uint64_t index = random_below(values.size(), seed_, number_, drawn_++);
    return values.begin()[index];
  }

 private:
  std::uint64_t seed_, number_, drawn_ = 0;
};

}  // namespace

TrainOptions drawn_options(const Dataset& dataset, TrainOptions options, std::uint64_t number) {
  constexpr std::int64_t kFew = 64;  // features: the model has to look farther
  GridDraws draw(options.seed, number);
  const auto depth = dataset.num_features() < kFew ? draw.of<std::int64_t>({2, 3, 4, 5, 6, 8})
                                                   : draw.of<std::int64_t>({2, 3, 4, 5});
  if (!sampled_layers(options)) options.layers = depth;
  const bool has_heads = options.model == nn::ModelKind::kGat;
  constexpr std::int64_t kHeadsOfDraws = 8;
  options.hidden = draw.of<std::int64_t>({64, 128, 256}) / (has_heads ? kHeadsOfDraws : 1);
  options.heads = kHeadsOfDraws;
  using enum nn::Normalization;
  options.normalization = draw.of({kNone, kLayer, kBatch});
  options.skip = draw.of({false, true});
  options.dropout = draw.of({0.2, 0.5, 0.7, 0.8});
  options.learning_rate = draw.of({0.001, 0.003, 0.01});
  options.weight_decay = draw.of({0.0, 5e-5, 5e-4, 1e-3, 5e-3});
  options.attention_dropout = draw.of({0.0, 0.3, 0.6});
  options.normalize_features = draw.of({false, true}) && dataset.features.defined() &&
                               dataset.features.scalar_type() == at::kFloat && !dataset.is_mapped;
  return options;
}

namespace {

/// Resets the options that the model, or one of so many layers, does not have.
void drop_foreign(TrainOptions& options) {
  const TrainOptions defaults;
  fields::for_each(fields::kTraining, [&](const auto& field) {
    const auto applies = field.rules.applies;
    if (applies != nullptr && !applies(options)) options.*field.member = defaults.*field.member;
  });
  if (options.layers > 1 || options.model == nn::ModelKind::kSgc) return;
  if (!nn::has_layer_mlps(options.model)) options.hidden.reset();
  options.heads.reset();
  options.normalization = nn::Normalization::kNone;
}

}  // namespace

void check_fixed(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    bool is_known = false;
    fields::for_each(fields::kTraining,
                     [&](const auto& field) { is_known = is_known || name == field.name; });
    MEZZO_CHECK(is_known, "fixed: expected names of options of training, got '{}'", name);
  }
}

bool is_fixed(const std::vector<std::string>& fixed, std::string_view name) {
  return std::find(fixed.begin(), fixed.end(), name) != fixed.end();
}

TrainOptions with_fixed(TrainOptions options, const TrainOptions& job,
                        const std::vector<std::string>& fixed) {
  const auto copy_fixed = [&] {
    fields::for_each(fields::kTraining, [&](const auto& field) {
      if (is_fixed(fixed, field.name)) options.*field.member = job.*field.member;
    });
  };
  if (is_fixed(fixed, "heads")) set_heads(options, job.heads);
  copy_fixed();
  drop_foreign(options);
  copy_fixed();  // so that a fixed one that does not fit is an error
  return options;
}

}  // namespace mezzo
