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

/// How data sets are read; not for callers of the library.
namespace mezzo::data {

/// Sizes and names of a data set, known before its rows.
struct SourceHeader {
  std::string name;
  std::int64_t num_nodes = 0;
  std::int64_t num_features = 0;  ///< 0: no features
  std::vector<std::string> class_names = {};
  Metric metric = Metric::kAccuracy;
  /// edges() may give parallel edges, which count as one.
  bool distinct_edges = false;
};

/// A data set that is being read. Most formats are streamed: a conversion then needs memory for the
/// nodes, but not for the edges and features: a piece, at most a hundred bytes a node, and of
/// multi-label data some ten an entry; GraphSAINT's JSON files and features in Fortran order are
/// held whole besides.
/// Every function may be called again and then starts from the beginning. Errors are IoError naming
/// file, line (of text) and fault, also for a file that changes between two calls, and
/// InvalidArgument for a split that the data do not have. Not thread-safe.
class MEZZO_API GraphSource {
 public:
  virtual ~GraphSource() = default;
  /// Reads as much as is needed to know it (for text without counts: the whole file, once).
  virtual SourceHeader header() = 0;
  /// The directed edges as the data set has them after its conventions (reverse edges added if
  /// the format asks for it), in pieces: int64 [n] each, ids in [0, num_nodes), n at most 2^20.
  using TakeEdges = std::function<void(const at::Tensor& src, const at::Tensor& dst)>;
  virtual void edges(const TakeEdges& take) = 0;
  /// All rows of the features from row 0 on, in pieces: float32, bfloat16 or float16 [n, F],
  /// strided, n such that a piece stays below 64 MiB.
  using TakeRows = std::function<void(const at::Tensor& rows)>;
  virtual void features(const TakeRows& /*take*/) {}
  virtual NodeLabels labels() { return {}; }
  /// bool [N, S] each, or nullopt: the data have no split, and every node a label (or an entry of
  /// several) if any has.
  struct Masks {
    at::Tensor train, val, test;
  };
  virtual std::optional<Masks> masks() { return std::nullopt; }
  /// The data set, if its format is read at once; else nullptr. Sparse features are here alone.
  virtual Dataset* dataset() { return nullptr; }
};

/// Reads a whole source, piece by piece, into memory. Without masks there is a random split. Data
/// without labels are an IoError unless options.labels_optional; then labels and masks stay
/// undefined. 16-bit features become float32. origin: what the source reads, for errors; its name
/// if empty.
MEZZO_API Dataset read_all(GraphSource& source, const LoadOptions& options,
                           const std::string& origin = "");

/// The source of a data set that is in memory.
MEZZO_API std::unique_ptr<GraphSource> source_of(Dataset dataset);

}  // namespace mezzo::data
