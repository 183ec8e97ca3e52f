#pragma once

#include <cstdint>
#include <string_view>

#include "mezzo/core/type_list.h"

namespace mezzo::nn {

/// How a layer combines the rows h_u of the in-neighbours of a node. A node without in-edges gets 0
/// under all but kGcn. Each layer rejects the aggregators that it does not support.
enum class Aggregator : std::uint8_t {
  kMean,  ///< their mean
  kGcn,   ///< the mean of them and of the node itself: (sum of h_u + h_v) / (in-degree + 1)
  kPool,  ///< the maximum of relu(fc_pool(h_u)), per feature
  kSum,   ///< their sum
  kMax,   ///< their maximum, per feature
  kLstm,  ///< the last state of an LSTM that reads them in the order of their edges
};

struct MeanAggregator {
  static constexpr Aggregator kind = Aggregator::kMean;
  static constexpr std::string_view name = "mean";
};
struct GcnAggregator {
  static constexpr Aggregator kind = Aggregator::kGcn;
  static constexpr std::string_view name = "gcn";
};
struct PoolAggregator {
  static constexpr Aggregator kind = Aggregator::kPool;
  static constexpr std::string_view name = "pool";
};
struct SumAggregator {
  static constexpr Aggregator kind = Aggregator::kSum;
  static constexpr std::string_view name = "sum";
};
struct MaxAggregator {
  static constexpr Aggregator kind = Aggregator::kMax;
  static constexpr std::string_view name = "max";
};
struct LstmAggregator {
  static constexpr Aggregator kind = Aggregator::kLstm;
  static constexpr std::string_view name = "lstm";
};

/// Every aggregator, with its name.
using Aggregators = TypeList<MeanAggregator, GcnAggregator, PoolAggregator, SumAggregator,
                             MaxAggregator, LstmAggregator>;
/// Those of SAGEConv.
using SageAggregators = TypeList<MeanAggregator, GcnAggregator, PoolAggregator, LstmAggregator>;
/// Those of GINConv.
using GinAggregators = TypeList<SumAggregator, MeanAggregator, MaxAggregator>;

}  // namespace mezzo::nn
