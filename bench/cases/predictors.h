#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"

#include "bench/harness/program.h"

namespace mezzo::bench {

inline constexpr nn::ModelKind kPredictorKinds[] = {nn::ModelKind::kGcn, nn::ModelKind::kSage,
                                                    nn::ModelKind::kGat, nn::ModelKind::kGin};

/// A model of one width with equal weights in every call.
nn::Model predictor_model(nn::ModelKind kind, std::int64_t width, std::int64_t layers);

/// R-MAT on a power of two of nodes, scaled to any number of them.
Topology rmat_topology(std::int64_t nodes, std::int64_t edges);

double seconds_of(const std::function<void()>& work);

/// The bits of float32 numbers: NaN equals itself.
at::Tensor words(const at::Tensor& numbers);

/// How many elements have other bits.
std::int64_t differing_elements(const at::Tensor& a, const at::Tensor& b);

/// Makes `steps` random questions and updates with each model and precision; prints how many
/// elements differ from a full pass of a new Predictor. Throws LogicError if some do.
void run_stress(Bench& bench, std::int64_t layers, std::int64_t steps);

/// Applies a file's changes of edges to an empty graph, `batch` at a time, with each model and
/// precision; prints the updates a second and the rows that change. The file has lines `+ src dst`
/// and `- src dst`; nodes are added when a line names them. Every tenth of the file compares all
/// rows with a new Predictor. Throws IoError for other lines, LogicError if an element differs.
void run_stream(Bench& bench, std::int64_t layers, const std::string& path, std::int64_t batch);

}  // namespace mezzo::bench
