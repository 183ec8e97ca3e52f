#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"
#include "mezzo/data/readers.h"

/// How data sets are read; internal.
namespace mezzo::data {

/// Sizes and names of a data set, known before its rows.
struct SourceHeader {
  std::string name;
  std::int64_t num_nodes = 0;
  std::int64_t num_features = 0;       ///< 0: no features
  std::int64_t num_edge_features = 0;  ///< 0: none
  std::vector<std::string> class_names = {};
  Metric metric = Metric::kAccuracy;
  /// edges() may contain parallel edges, which count as one.
  bool distinct_edges = false;
  std::vector<Task> tasks = {};  ///< Dataset::tasks; empty: that of labels()
};

/// A data set that is being read. Most formats are streamed: a conversion then needs memory for the
/// nodes, but not for the edges and features: one chunk, at most 100 bytes a node, and about ten
/// bytes an entry of multi-label data. GraphSAINT's JSON files and features in Fortran order are
/// read as a whole. Every function may be called again and then starts from the beginning. Errors:
/// IoError with file, line (of text) and fault, also if a file changes between two calls;
/// InvalidArgument for a missing split. Not thread-safe.
class MEZZO_API GraphSource {
 public:
  virtual ~GraphSource() = default;
  /// Reads only what it needs (for text without counts: the whole file, once).
  virtual SourceHeader header() = 0;
  /// The directed edges by the conventions of the format (which may add reverse edges), in chunks:
  /// int64 [n] each, ids in [0, num_nodes), n at most 2^20.
  using TakeEdges = std::function<void(const at::Tensor& src, const at::Tensor& dst)>;
  virtual void edges(const TakeEdges& take) = 0;
  /// float32 [E] in the order of edges(); undefined: the edges have no weights. Not streamed.
  virtual at::Tensor edge_weights() { return {}; }
  /// Dataset::graph_offsets. Not streamed.
  virtual at::Tensor graph_offsets() { return {}; }
  /// All rows of the features from row 0 on, in chunks below 64 MiB: float32, bfloat16 or float16
  /// [n, F], strided.
  using TakeRows = std::function<void(const at::Tensor& rows)>;
  virtual void features(const TakeRows& /*take*/) {}
  /// The same of the edges, in the order of edges().
  virtual void edge_features(const TakeRows& /*take*/) {}
  virtual TargetLabels labels() { return {}; }
  /// bool [T, S] each. nullopt: the data have no split, and either every target has a label (or an
  /// entry) or none has.
  struct Masks {
    at::Tensor train, val, test;
  };
  virtual std::optional<Masks> masks() { return std::nullopt; }
  /// Dataset::split_names, after masks().
  virtual std::vector<std::string> split_names() { return {}; }
  /// The data set, if its format is read as a whole; else nullptr. Only it can have sparse
  /// features.
  virtual Dataset* dataset() { return nullptr; }
};

/// Reads a whole source into memory. Data without masks get a random split. Data without labels are
/// an IoError unless options.labels_optional; then labels and masks stay undefined. 16-bit features
/// become float32. origin: the path for errors; if empty, the source's name.
MEZZO_API Dataset read_all(GraphSource& source, const LoadOptions& options,
                           const std::string& origin = "");

/// The source of a data set that is in memory.
MEZZO_API std::unique_ptr<GraphSource> source_of(Dataset dataset);

}  // namespace mezzo::data
