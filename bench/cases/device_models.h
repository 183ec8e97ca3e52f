#pragma once

#include <cstdint>
#include <vector>

#include "mezzo/amp/precision.h"
#include "mezzo/graph/topology.h"

#include "bench/cases/device_graphs.h"
#include "bench/harness/measure.h"

namespace mezzo::bench {

/// Three GAT layers, 602 features to 41 classes, `heads` heads of `hidden` features each in the
/// hidden layers: forward, backward and FusedAdam's step. Results: the loss.
Plan gat_step(const Topology& topology, std::int64_t heads, std::int64_t hidden,
              const std::vector<amp::Precision>& precisions);

/// Two GraphConv layers of 16 hidden features on a graph of Cora's size, without dropout, eager and
/// captured (amp::CapturedStep). Results: the loss.
Plan cora_step(const std::vector<amp::Precision>& precisions);

/// Training step of the CNN for 28 x 28 images on `batch` of them, in TF32 and 16 bits, with both
/// layouts of the activations. Results: the loss.
Plan cnn_step(std::int64_t batch);

}  // namespace mezzo::bench
