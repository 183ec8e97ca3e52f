#pragma once

#include <cstdint>
#include <vector>

#include "mezzo/amp/precision.h"

#include "bench/cases/kernels.h"
#include "bench/harness/measure.h"
#include "bench/harness/operator_case.h"

namespace mezzo::bench {

/// A graph attention layer from `width` to `width` features (4 heads of width / 4, or one if 4 does
/// not divide it), and the gradients of its input and weights, compared with plain libtorch on E x
/// F tensors, as in PyG. The input has the storage type of the precision, as inside a model; the
/// weights are float32. The first candidate that runs, in float32, gives the expected results: the
/// output and the gradients of input and weight. Those of the attention vectors are not compared,
/// because cancellation amplifies their rounding errors.
Plan gat_layer(const Workload& load, std::int64_t width, Pass pass);

/// As gat_layer, for a GATv2 layer; compares the gradient of the source weight.
Plan gatv2_layer(const Workload& load, std::int64_t width, Pass pass);

/// An InteractionBlock whose nodes, edges and hidden layer have `width` features, compared with
/// plain libtorch on the concatenated rows of each edge, as in PyG's MetaLayer. Compares both
/// results and the gradients of both inputs; the results stay alive during the backward.
Plan interaction_block(const Workload& load, std::int64_t width, Pass pass);

/// The sizes of a dense product [rows, in] x [in, out].
struct ProductSize {
  std::int64_t rows, in, out;
};

/// Compares `linear` with libtorch's in float32 and bfloat16; the expected results are in float64.
/// On a GPU also with libtorch's in TF32. The plan's width is `out`.
Plan dense_product(const ProductSize& size, const std::vector<amp::Precision>& precisions,
                   Pass pass, at::Device device = at::kCPU);

}  // namespace mezzo::bench
