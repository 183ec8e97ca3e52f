#pragma once

#include <cstdint>
#include <string_view>

#include "mezzo/core/type_list.h"

namespace mezzo {

/// How the messages that arrive at one node become one value. A node without messages gets 0.
enum class ReduceOp : std::uint8_t { kSum, kMean, kMax, kMin, kProd };

namespace kernels {

struct Sum {
  static constexpr ReduceOp kind = ReduceOp::kSum;
  static constexpr std::string_view name = "sum";
  static constexpr bool selects = false;  ///< whether one message is chosen and its edge recorded
  static constexpr bool divides = false;  ///< whether the sum is divided by the number of messages
  static constexpr bool multiplies = false;  ///< whether messages are multiplied rather than added
};

struct Mean {
  static constexpr ReduceOp kind = ReduceOp::kMean;
  static constexpr std::string_view name = "mean";
  static constexpr bool selects = false;
  static constexpr bool divides = true;
  static constexpr bool multiplies = false;
};

/// NaN wins over any number and the first of several equal messages over the later ones.
struct Max {
  static constexpr ReduceOp kind = ReduceOp::kMax;
  static constexpr std::string_view name = "max";
  static constexpr bool selects = true;
  static constexpr bool divides = false;
  static constexpr bool multiplies = false;
  template <class V>
  static constexpr auto better(V message, V best) {
    return best < message;
  }
};

struct Min {
  static constexpr ReduceOp kind = ReduceOp::kMin;
  static constexpr std::string_view name = "min";
  static constexpr bool selects = true;
  static constexpr bool divides = false;
  static constexpr bool multiplies = false;
  template <class V>
  static constexpr auto better(V message, V best) {
    return message < best;
  }
};

/// The gradient of a message is the product of the others, also where some are 0: by division (as
/// torch.prod's), so it is lost where the whole product over- or underflows or a message is
/// infinite.
struct Prod {
  static constexpr ReduceOp kind = ReduceOp::kProd;
  static constexpr std::string_view name = "prod";
  static constexpr bool selects = false;
  static constexpr bool divides = false;
  static constexpr bool multiplies = true;
};

}  // namespace kernels

using ReduceOps = TypeList<kernels::Sum, kernels::Mean, kernels::Max, kernels::Min, kernels::Prod>;

/// The properties of a reducer, see Sum.
struct ReduceTraits {
  bool selects = false, divides = false, multiplies = false;
};

constexpr ReduceTraits traits_of(ReduceOp op) {
  ReduceTraits traits;
  detail::visit(ReduceOps{}, op, [&]<class Reduce>() {
    traits = {Reduce::selects, Reduce::divides, Reduce::multiplies};
  });
  return traits;
}

}  // namespace mezzo
