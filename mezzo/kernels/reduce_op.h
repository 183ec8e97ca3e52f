#pragma once

#include <cstdint>
#include <string_view>

#include "mezzo/core/type_list.h"

namespace mezzo {

/// How the messages of a node are reduced to one value. A node without messages gets 0.
enum class ReduceOp : std::uint8_t { kSum, kMean, kMax, kMin, kProd };

namespace kernels {

/// The properties of a reducer.
struct Reducer {
  static constexpr bool selects = false;  ///< whether one message is selected and its edge recorded
  static constexpr bool divides = false;  ///< whether the sum is divided by the number of messages
  static constexpr bool multiplies = false;  ///< whether messages are multiplied
};

struct Sum : Reducer {
  static constexpr ReduceOp kind = ReduceOp::kSum;
  static constexpr std::string_view name = "sum";
};

struct Mean : Reducer {
  static constexpr ReduceOp kind = ReduceOp::kMean;
  static constexpr std::string_view name = "mean";
  static constexpr bool divides = true;
};

/// NaN wins over any number; of equal messages the first wins.
struct Max : Reducer {
  static constexpr ReduceOp kind = ReduceOp::kMax;
  static constexpr std::string_view name = "max";
  static constexpr bool selects = true;
  template <class V>
  static constexpr auto better(V message, V best) {
    return best < message;
  }
};

struct Min : Reducer {
  static constexpr ReduceOp kind = ReduceOp::kMin;
  static constexpr std::string_view name = "min";
  static constexpr bool selects = true;
  template <class V>
  static constexpr auto better(V message, V best) {
    return message < best;
  }
};

/// The gradient of a message is the product of the others, correct also if some are 0. It is
/// computed by division, as in torch.prod, so it is wrong if the whole product overflows or
/// underflows or a message is infinite.
struct Prod : Reducer {
  static constexpr ReduceOp kind = ReduceOp::kProd;
  static constexpr std::string_view name = "prod";
  static constexpr bool multiplies = true;
};

}  // namespace kernels

using ReduceOps = TypeList<kernels::Sum, kernels::Mean, kernels::Max, kernels::Min, kernels::Prod>;

/// The properties of a reducer, see kernels::Reducer.
struct ReduceTraits {
  bool selects = false, divides = false, multiplies = false;
};

/// The properties of `op`.
constexpr ReduceTraits traits_of(ReduceOp op) {
  ReduceTraits traits;
  detail::visit(ReduceOps{}, op, [&]<class Reduce>() {
    traits = {Reduce::selects, Reduce::divides, Reduce::multiplies};
  });
  return traits;
}

}  // namespace mezzo
