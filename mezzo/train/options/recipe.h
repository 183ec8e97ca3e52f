#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "mezzo/core/export.h"
#include "mezzo/core/type_list.h"
#include "mezzo/data/dataset.h"
#include "mezzo/train/options/options.h"

namespace mezzo {

/// Where the options of the model and of training come from, unless they are given by hand.
enum class RecipeKind : std::uint8_t { kAuto, kPlanetoid };

/// Chosen from the data set: recommended_options().
struct AutoRecipe {
  static constexpr RecipeKind kind = RecipeKind::kAuto;
  static constexpr std::string_view name = "auto";
};
/// The defaults of TrainOptions, from Kipf and Welling 2017 (arXiv:1609.02907).
struct PlanetoidRecipe {
  static constexpr RecipeKind kind = RecipeKind::kPlanetoid;
  static constexpr std::string_view name = "planetoid";
};
using RecipeKinds = TypeList<AutoRecipe, PlanetoidRecipe>;

/// The facts about a data set and a split that decide its recipe. For a part of a data set: facts
/// about its own nodes, but the mean degree in the whole.
struct RecipeFacts {
  double train_share = 0;      ///< of the targets, in training
  double mean_degree = 0;      ///< in-edges of a node
  double feature_density = 0;  ///< share of the features that are not 0; mapped features: 1
  std::int64_t num_features = 0;
  TaskTarget target = TaskTarget::kNode;
};

/// Reads labels, masks and sparse structure; dense features that are not mapped are read once.
MEZZO_API RecipeFacts recipe_facts(const Dataset& dataset, std::int64_t split_index);

/// The facts in words, for a line of output.
MEZZO_API std::string to_string(const RecipeFacts& facts);

/// The model for the labels of the data: of graphs gine if the edges have features, else gin; gcn
/// for others, and for graphs with edge weights, which only gcn and sage take.
MEZZO_API nn::ModelKind recommended_model(const Dataset& dataset);

/// `options` with those set that the automatic recipe chooses for the data set, the split and the
/// model: layers, hidden, heads, dropout, attention_dropout, normalization, skip, epochs, patience,
/// learning_rate, weight_decay and normalize_features. The other members stay; sampling has
/// sampled_layers(), and a part of a data set at most its hops. layers: instead of the recipe's.
/// For a model of your own (.model = nn::ModelKind::kOwn) only the last five are set.
/// docs/command.md has the rules and what they reach. Deterministic. Reads the features once.
/// Throws InvalidArgument for a split that the data lack.
MEZZO_API TrainOptions recommended_options(const Dataset& dataset, TrainOptions options,
                                           std::optional<std::int64_t> layers = {});

/// Sets the heads of a hidden layer of gat and keeps the width of all heads together, rounded down
/// to a multiple of `heads`, but at least 1 of each. Does nothing if `options` has no heads or
/// hidden, or `heads` is no number above 0.
MEZZO_API void set_heads(TrainOptions& options, std::optional<std::int64_t> heads);

/// The layers that mini-batches need, one for each fanout or layer size; nullopt without these.
MEZZO_API std::optional<std::int64_t> sampled_layers(const TrainOptions& options);

/// The options that a recipe sets, as flags of the command: "--layers 2 --hidden 64 ...".
MEZZO_API std::string recipe_flags(const TrainOptions& options);

}  // namespace mezzo
