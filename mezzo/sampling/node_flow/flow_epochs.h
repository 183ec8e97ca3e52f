#pragma once

#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/frame.h"
#include "mezzo/sampling/batch_key.h"
#include "mezzo/sampling/batches.h"
#include "mezzo/sampling/node_flow/node_flow.h"
#include "mezzo/sampling/seed_order.h"

namespace mezzo::detail {

/// Draws the flow of these seeds (int64, distinct). Called by several threads at once.
using DrawFlow =
    std::function<NodeFlow(const at::Tensor& seeds, const BatchKey& key, Workspace& workspace)>;

/// Passes over the seeds that draw a flow for each batch, gather its rows of `features` (columns of
/// the parent's nodes; see FlowRows) and add what it took to the counters. seed: of the draws'
/// keys.
Batches<NodeFlow>::MakeEpoch flow_epochs(SeedOrder seeds, std::uint64_t seed, DrawFlow draw,
                                         Columns features,
                                         std::shared_ptr<PipelineCounters> counters);

}  // namespace mezzo::detail
