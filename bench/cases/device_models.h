#pragma once

#include <cstdint>
#include <string>
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

/// Training step of the CNN for 28 x 28 images on `batch` of them, in every precision, with both
/// layouts of the activations. Results: the loss.
Plan cnn_step(std::int64_t batch);

/// An epoch of `num_images` in whole batches. Results: the mean loss.
Plan cnn_epoch(std::int64_t batch, std::int64_t num_images);

/// The losses of the first steps of gat_step() in each precision, one line per step.
std::string gat_losses(const Topology& topology, std::int64_t heads, std::int64_t hidden,
                       std::int64_t num_steps, const std::vector<amp::Precision>& precisions);

/// How many heads of `hidden` features fit in the device's memory in gat_step(), of 2, 4, 8, ... up
/// to `most`: one line for each precision.
std::string largest_gat(const Topology& topology, std::int64_t hidden, std::int64_t most,
                        const std::vector<amp::Precision>& precisions);

}  // namespace mezzo::bench
