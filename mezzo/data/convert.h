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

/// How far a conversion is.
struct ConvertProgress {
  /// "reading lines", "counting edges", "placing edges", "sorting rows", "merging edges",
  /// "features", "checking"
  std::string_view stage;
  std::int64_t done = 0;   ///< lines, edges or nodes, as the stage has it
  std::int64_t total = 0;  ///< 0: not known
};

/// Options of convert_dataset.
struct ConvertOptions {
  at::ScalarType feature_dtype = at::kFloat;  ///< float32, bfloat16 or float16
  bool normalize_features = false;            ///< as LoadOptions::normalize_features
  std::string split = {};                     ///< as LoadOptions::split
  std::uint64_t split_seed = 0;               ///< as LoadOptions::split_seed
  bool symmetrize = false;  ///< add the reverse of every edge, each edge standing once: for lists
                            ///< that give each undirected edge in one direction only
  bool overwrite = false;   ///< replace a mapped dataset, and nothing else
  /// Called after every piece, and after every 2^20 lines of a text file.
  std::function<void(const ConvertProgress&)> on_progress = {};
  std::function<bool()> should_stop = {};  ///< asked as often; true: stop, leave nothing
};

/// What convert_dataset has written.
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
  bool stopped = false;  ///< should_stop said so: nothing was written
};

/// Writes the data set `input` (all that load_dataset reads, labels being optional) as the mapped
/// dataset `output` (see mezzo/data/mapped/mapped_dataset.h). Rows are by destination with
/// ascending sources; parallel edges stay but where the format (data::SourceHeader) or `symmetrize`
/// has them merged. Features are rounded to the nearest `feature_dtype`, ties to even; sparse ones
/// (of the formats that load_dataset keeps sparse) stay sparse. Data with labels but no masks get
/// the random split of `split_seed`. The result does not depend on the number of threads.
///
/// Memory: formats that are streamed (data::GraphSource) need 16 bytes a node, what their source
/// holds (at most a hundred bytes a node, but for JSON files and features in
/// Fortran order), and 128 MiB for pieces, whatever the number of edges and features; the sources
/// are placed in the output file by way of the page cache, which is slow where that file exceeds
/// the machine's memory. Other formats need the memory of the whole data set besides. The edges are
/// read twice, and once more before where no file lists the nodes (SNAP, edges.csv alone). Until
/// parallel edges are merged the file of the sources holds them all.
///
/// Written beside, as `<output>.partial-<number>`, and moved into place at the end, once it is on
/// the disk, so that an error or a stop leaves nothing and a reader never sees half; a process that
/// is killed leaves that folder. Throws InvalidArgument for a wrong dtype and for an `output` that
/// exists and may not be overwritten: with `overwrite` a mapped dataset may, `input` itself too,
/// that holds nothing but the files that its manifest names; IoError as load_dataset does, for
/// features that are not finite or that `feature_dtype` cannot hold (row and value are named), and
/// where the disk is full.
MEZZO_API ConvertReport convert_dataset(const std::string& input,
                                        const std::filesystem::path& output,
                                        const ConvertOptions& options = {});

namespace data {

/// The file or folder that load_dataset reads it from, the later Dataset::origin. It need not
/// exist; it may be "folder/ind.name".
MEZZO_API std::string origin_of(const std::string& name_or_path);

}  // namespace data
}  // namespace mezzo
