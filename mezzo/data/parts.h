#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"

namespace mezzo {

/// Options of write_parts.
struct PartsOptions {
  std::int64_t hops = 2;                   ///< of the halo, 1 to 254: as many as a model has layers
  bool overwrite = false;                  ///< replace an existing folder of parts
  std::function<bool()> should_stop = {};  ///< called before every part; true: stop, write nothing
};

/// Throws InvalidArgument unless hops are 1 to 254; write_parts checks it too.
MEZZO_API void check_options(const PartsOptions& options);

/// One part written by write_parts.
struct PartSize {
  std::string folder;  ///< "part0", ...
  std::int64_t own_nodes = 0, halo_nodes = 0;
  std::int64_t edges = 0;  ///< of the part, including those into its halo
};

/// The result of write_parts.
struct MEZZO_API PartsReport {
  std::string name;
  std::int64_t num_nodes = 0, num_edges = 0, hops = 0;
  std::int64_t edge_cut = 0;  ///< edges between nodes of different parts
  std::vector<PartSize> parts;
  bool stopped = false;  ///< by should_stop: nothing was written

  /// Nodes of all parts, including halos, divided by the nodes of the whole.
  double replication() const;
};

/// Writes each part of a data set as a mapped dataset `output`/part0, part1, ..., and
/// `output`/partition.json, which lists them. parts: int64 [N], the part of each node, in [0,
/// num_parts); each part must have a node.
///
/// A part holds its own nodes and its halo: the nodes with a path of at most `hops` edges to an own
/// node. Nodes keep their order in the whole. Nodes fewer than `hops` edges away have all their
/// in-edges, nodes exactly `hops` edges away only their self loops. So the `hops`-hop
/// neighbourhoods of own nodes are complete, and equal seeds in the same order sample the same
/// neighbours as in the whole (BlockSampler; LABOR with Options::node_ids). The masks hold own
/// nodes only; Dataset::part has ids and degrees in the whole. If the data set has src and dst, the
/// sources in each row ascend.
///
/// Memory: in addition to the data set 17 bytes a node, one part without its features, which are
/// copied in slices, and 40 bytes an edge if the edges are src and dst. The folder appears only
/// when complete, as with convert_dataset; `overwrite` replaces a folder that holds only parts.
/// Throws InvalidArgument, also if the data set is itself a part or lies below `output`; IoError if
/// the disk fails or is full.
MEZZO_API PartsReport write_parts(const Dataset& dataset, const at::Tensor& parts,
                                  const std::filesystem::path& output,
                                  const PartsOptions& options = {});

/// The data set that process `rank` of `world_size` loads: its part if `name_or_path` is a folder
/// of parts, else `name_or_path`. Throws InvalidArgument if the number of parts is not the number
/// of processes, IoError for a damaged partition.json.
MEZZO_API std::string part_for_rank(const std::string& name_or_path, std::int64_t rank,
                                    std::int64_t world_size);

namespace data {

/// The file in a folder of parts that lists them.
inline constexpr auto kPartitionFile = "partition.json";

/// Whether it is a folder written by write_parts.
bool is_folder_of_parts(const std::filesystem::path& path);

/// Throws InvalidArgument as write_parts would for this `output` and a data set read from `source`.
/// Creates no files.
MEZZO_API void check_output_of_parts(const std::filesystem::path& output, bool overwrite,
                                     const std::string& source);

}  // namespace data
}  // namespace mezzo
