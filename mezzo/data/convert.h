#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"

namespace mezzo {

/// The progress of a conversion.
struct ConvertProgress {
  /// "reading lines", "counting edges", "placing edges", "sorting rows", "merging edges",
  /// "features", "checking"
  std::string_view stage;
  std::int64_t done = 0;   ///< lines, edges or nodes, depending on the stage
  std::int64_t total = 0;  ///< 0: not known
};

/// Options of convert_dataset.
struct ConvertOptions {
  at::ScalarType feature_dtype = at::kFloat;  ///< float32, bfloat16 or float16
  bool normalize_features = false;            ///< as LoadOptions::normalize_features
  std::string split = {};                     ///< as LoadOptions::split
  std::uint64_t split_seed = 0;               ///< as LoadOptions::split_seed
  std::optional<Task> task = {};              ///< as LoadOptions::task
  CsvColumns csv = {};                        ///< as LoadOptions::csv
  bool symmetrize = false;  ///< add the reverse of every edge and merge parallel edges: for files
                            ///< that list each undirected edge in one direction only
  bool overwrite = false;   ///< replace an existing mapped dataset
  /// Called after every chunk, and after every 2^20 lines of a text file.
  std::function<void(const ConvertProgress&)> on_progress = {};
  std::function<bool()> should_stop = {};  ///< called as often; true: stop, write nothing
};

/// The result of convert_dataset.
struct ConvertReport {
  std::string name;
  std::int64_t num_nodes = 0, num_edges = 0, num_features = 0, num_classes = 0;
  struct File {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
    std::int64_t bytes = 0;  ///< of the items
  };
  std::vector<File> files;
  double seconds = 0;
  bool stopped = false;  ///< by should_stop: nothing was written
};

/// Writes the data set `input` (anything that load_dataset reads; labels are optional) as the
/// mapped dataset `output` (see mezzo/data/mapped/mapped_dataset.h). Rows are by destination with
/// ascending sources; parallel edges stay unless the format (data::SourceHeader) or `symmetrize`
/// merges them. Features are rounded to the nearest `feature_dtype`, ties to even; sparse ones (of
/// the formats that load_dataset keeps sparse) stay sparse. Data with labels but no masks get the
/// random split of `split_seed`. The result does not depend on the number of threads.
///
/// Memory: streamed formats (data::GraphSource) need 16 bytes a node, the memory of their source
/// (at most 100 bytes a node, except JSON files and features in Fortran order), and 128 MiB for
/// chunks, whatever the number of edges and features. The sources are written to the output file
/// through the page cache, which is slow if that file exceeds the machine's memory. Other formats
/// also need the memory of the whole data set. The edges are read twice, or three times if no file
/// lists the nodes (SNAP, edges.csv without nodes.csv). The file of the sources holds all parallel
/// edges until they are merged. Edge weights, features and labels, which are not for `symmetrize`,
/// need 60 bytes an edge.
///
/// Writes to `<output>.partial-<number>` and renames it when it is complete and on disk: an error
/// or a stop leaves no files, and a reader never sees an incomplete folder. A killed process leaves
/// the partial folder. Throws InvalidArgument for a wrong dtype and if `output` exists and must
/// not be overwritten; `overwrite` allows a mapped dataset (also `input` itself) that holds only
/// the files of its manifest. Throws IoError as load_dataset does, for features that are not finite
/// or that `feature_dtype` cannot hold (with row and value), and if the disk is full.
MEZZO_API ConvertReport convert_dataset(const std::string& input,
                                        const std::filesystem::path& output,
                                        const ConvertOptions& options = {});

namespace data {

/// The file or folder that load_dataset would read, its Dataset::origin. It need not exist and may
/// be "folder/ind.name".
MEZZO_API std::string origin_of(const std::string& name_or_path);

}  // namespace data
}  // namespace mezzo
