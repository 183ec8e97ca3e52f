#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"

namespace mezzo::data {

/// Sizes and names of a data set, told before its rows.
struct SourceHeader {
  std::string name;
  std::int64_t num_nodes = 0;
  std::int64_t num_features = 0;  ///< 0: no features
  std::vector<std::string> class_names;
  Metric metric = Metric::kAccuracy;
  /// Parallel edges count as one: edges() may give them, and who takes the edges merges them.
  bool distinct_edges = false;
};

/// A data set read piece by piece, so that a conversion needs memory for its nodes but not for its
/// edges or features: a piece, at most a hundred bytes a node, and of multi-label data
/// some ten an entry; GraphSAINT's JSON files and features in Fortran order are held whole besides.
/// Every function may be called again and then starts anew. Errors are IoError naming file, line
/// (of text) and fault, also for a file that changes between two calls, and InvalidArgument for a
/// split that the data do not have. Not for use by several threads at once.
class MEZZO_API GraphSource {
 public:
  virtual ~GraphSource() = default;
  /// Reads as much as is needed to know it (for text without counts: the whole file, once).
  virtual SourceHeader header() = 0;
  /// The directed edges as the data set has them after its conventions (reverse edges added where
  /// the format asks for it), in pieces: int64 [n] each, ids in [0, num_nodes), n at most 2^20.
  using TakeEdges = std::function<void(const at::Tensor& src, const at::Tensor& dst)>;
  virtual void edges(const TakeEdges& take) = 0;
  /// All rows of the features from row 0 on, in pieces: float32, bfloat16 or float16 [n, F],
  /// strided (sparse sources give densified pieces), n such that a piece stays below 64 MiB.
  using TakeRows = std::function<void(const at::Tensor& rows)>;
  virtual void features(const TakeRows& take) = 0;
  /// As Dataset::labels, of one label a node or of several; kNoLabel alone, int64 [N], where C is
  /// 0.
  virtual at::Tensor labels() = 0;
  /// C, or 0: the data have no labels at all.
  virtual std::int64_t num_classes() = 0;
  /// bool [N, S] each, or nullopt: the data have no split, and every node a label (or an entry of
  /// several) if any has.
  struct Masks {
    at::Tensor train, val, test;
  };
  virtual std::optional<Masks> masks() = 0;
};

/// The source that reads `path` (a file or folder of a format below, told by the names of its
/// files), or nullptr where it is none of these; its contents are read when asked for. Formats: an
/// OGB node-property folder (csv.gz or binary npz), a GraphSAINT folder, DGL's Reddit folder, a
/// GraphBolt folder (metadata.yaml), a SNAP edge list (.txt, .txt.gz), a MatrixMarket file (.mtx,
/// .mtx.gz), a folder with edges.csv and perhaps nodes.csv (or .csv.gz). Any other .gz file, and
/// .edges, .el and .tsv files, are told by the first lines of their text; IoError where they are
/// damaged.
MEZZO_API std::unique_ptr<GraphSource> open_source(const std::filesystem::path& path,
                                                   const LoadOptions& options);

/// The whole of a source, in memory. Where it has no masks: a random split; where it has no labels:
/// IoError (a data set of node classification needs them) unless options.labels_optional, then
/// labels and masks stay undefined. 16-bit features become float32. origin: what the source reads,
/// which begins the errors of the whole; empty: its name.
MEZZO_API Dataset read_all(GraphSource& source, const LoadOptions& options,
                           const std::string& origin = "");

/// A Dataset in memory as a source, for conversions of the formats that are read at once. Keeps a
/// reference.
MEZZO_API std::unique_ptr<GraphSource> source_of(const Dataset& dataset);

}  // namespace mezzo::data
