#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/precision.h"
#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/train/trained_model.h"

namespace mezzo {

/// Options of Predictor.
struct PredictorOptions {
  /// Whether the rows of all nodes after every layer but the last are kept in memory. An update
  /// then marks the kept rows that it may change, and predict() recomputes those of them that it
  /// reads, keeps them, and computes the last layer. Else each call computes what it needs.
  bool resident = false;
  /// Precision of computation, weights and kept rows; nullopt: that of the training, or float32
  /// for a model that was not trained here.
  std::optional<amp::Precision> precision = {};
};

/// How predict() draws neighbours.
struct SampledNeighbors {
  /// Neighbours of a node, at most, input layer first; each >= 0 or kAllNeighbors.
  std::vector<std::int64_t> fanouts = {};
  /// What a node draws in a layer depends on (seed, layer, node, its in-edges) alone.
  std::uint64_t seed = 0;
};

/// A trained model and a graph that may change, on the CPU, for inference.
///
/// **Bits.** A result depends on the weights, the precision, the processor, and what the node,
/// edge or graph reads: not on what else a call asks for, the number of threads, `resident`, or the
/// history of the graph. In-edges of a node are added in ascending order of their sources, parallel
/// ones in the order of the bits of their weights. Results agree with TrainedModel::logits up to
/// rounding.
///
/// **Threads.** Const functions may run in any number of threads at the same time, each in its own
/// thread alone; of those that recompute kept rows one waits for another. The others may be called
/// at any time too: they wait for running calls, and later calls wait for them. A call sees all of
/// an update or nothing of it.
///
/// **Memory.** The weights; of N nodes and E edges 16 E bytes, about 80 N, and the edge rows; the
/// features [N, F] and, if resident, [N, width] for each layer but the last, in the precision's
/// type; for as many calls as there were at the same time 4 N bytes and a list of nodes. A call
/// holds the edges that it reads and the rows of two layers.
///
/// **Models.** All kinds but modules of your own, and SAGEConv's aggregators but kLstm; kSgc only
/// without a graph.
class MEZZO_API Predictor {
 public:
  /// Prepares the data as the training did: self loops, normalised features, for links only the
  /// edges that carry messages. Copies weights and data. Throws InvalidArgument as
  /// TrainedModel::logits, for a model that is not supported or not on the CPU, and for data of
  /// several graphs, which predict(input, x) takes.
  Predictor(const TrainedModel& trained, const Dataset& data, PredictorOptions options = {});
  /// Takes the graph as it is. features: floating [N, in], strided or sparse CSR. edge_rows:
  /// undefined, or float32 [E], finite weights (kGcn: above 0; kSage), or [E, edge_features]
  /// (kGine).
  Predictor(const nn::Model& model, const Topology& graph, const at::Tensor& features,
            PredictorOptions options = {}, const at::Tensor& edge_rows = {});
  /// Without a graph, for predict(input, x) alone. options.resident must be off.
  explicit Predictor(const TrainedModel& trained, PredictorOptions options = {});
  ~Predictor();
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) noexcept;

  /// The logits or numbers of all nodes: float32 [N, C]. For models of nodes, as the next two.
  at::Tensor predict() const;
  /// Of some nodes: [n, C]. nodes: integers [n], repeated or not. Computes the nodes within as many
  /// hops as there are layers; if resident, the marked rows among them and the last layer.
  at::Tensor predict(const at::Tensor& nodes) const;
  /// An estimate from sampled neighbours, uniform without replacement. Equal for equal seeds. With
  /// kAllNeighbors in every layer it is predict(nodes).
  at::Tensor predict(const at::Tensor& nodes, const SampledNeighbors& sampled) const;
  /// What the model's head computes for pairs of nodes, which need not be edges: float32 [n, C].
  /// For models of edges and links. src, dst: integers [n]. rows: what the head reads of each pair:
  /// finite floating [n, edge_features], or integers [n], types of links; undefined: none, or links
  /// of type 0.
  at::Tensor predict_edges(const at::Tensor& src, const at::Tensor& dst,
                           const at::Tensor& rows = {}) const;
  /// The model on another graph, on graphs (with_targets()) or on blocks; arguments and errors of
  /// nn::Model. Returns float32. A row has the same bits whatever other rows there are.
  at::Tensor predict(const nn::ModelInput& input, const at::Tensor& x) const;

  /// Adds an edge from src[i] to dst[i] for each i, parallel to present ones. src, dst: integers
  /// [n] on the CPU. rows: the edges' rows, as edge_rows; required if the graph has some. If the
  /// options of the training add self loops, added loops are ignored. Throws InvalidArgument and
  /// changes nothing, as all updates, for ids out of range and other shapes or values.
  void add_edges(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& rows = {});
  /// Removes one edge for each pair, of parallel ones the first. Throws InvalidArgument also if
  /// there are fewer.
  void remove_edges(const at::Tensor& src, const at::Tensor& dst);
  /// Replaces rows of features. nodes: distinct integers [n]; features: finite floating [n, in],
  /// strided or sparse CSR, prepared as those of the data.
  void set_features(const at::Tensor& nodes, const at::Tensor& features);
  /// Adds nodes without edges, apart from self loops of the options. features: as set_features.
  /// Returns the id of the first. Kept rows grow by doubling.
  std::int64_t add_nodes(const at::Tensor& features);

  /// If resident, recomputes all marked rows now, with libtorch's threads, so that later questions
  /// need not. predict() of other rows may run meanwhile.
  void refresh() const;

  /// The sources of the edges to a node: int64 [degree], ascending, with added self loops. Throws
  /// InvalidArgument for other ids.
  at::Tensor in_neighbors(std::int64_t node) const;
  std::int64_t num_nodes() const;
  std::int64_t num_edges() const;  ///< with added self loops
  /// Bytes of the weights, of features and kept rows, of the graph, and of scratch.
  std::int64_t memory_bytes() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace mezzo
