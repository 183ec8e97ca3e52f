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
  bool overwrite = false;                  ///< replace a folder of parts, and nothing else
  std::function<bool()> should_stop = {};  ///< asked before every part; true: stop, leave nothing
};

/// Throws InvalidArgument unless hops are 1 to 254; write_parts does so too.
MEZZO_API void check_options(const PartsOptions& options);

/// What write_parts has written of one part.
struct PartSize {
  std::string folder;  ///< "part0", ...
  std::int64_t own_nodes = 0, halo_nodes = 0;
  std::int64_t edges = 0;  ///< that the part holds, those into nodes of its halo included
};

/// What write_parts has written.
struct MEZZO_API PartsReport {
  std::string name;
  std::int64_t num_nodes = 0, num_edges = 0, hops = 0;
  std::int64_t edge_cut = 0;  ///< edges between nodes of different parts
  std::vector<PartSize> parts;
  bool stopped = false;  ///< should_stop said so: nothing was written

  /// Nodes of all parts, halos included, over those of the whole.
  double replication() const;
};

/// Writes each part of a data set as a mapped dataset `output`/part0, part1, ..., and
/// `output`/partition.json, which names them. parts: int64 [N], the part of each node, in
/// [0, num_parts); each part has a node.
///
/// A part holds its own nodes and its halo: the nodes from which an own node is reached by at most
/// `hops` edges; in the order that they have in the whole, so that rows stay in order. Nodes that
/// are fewer than `hops` edges away have all their in-edges, those at the rim only their loops. So
/// the neighbourhoods of `hops` hops of own nodes are complete, and equal seeds, in the same order,
/// draw the same neighbours as in the whole (BlockSampler; LABOR with Options::node_ids). The masks
/// hold own nodes only; Dataset::part has ids and degrees in the whole. Where the data set has its
/// edges as src and dst the rows get ascending sources, as those of a mapped dataset.
///
/// Memory: 17 bytes a node beside the data set, and those of a part but its features, which are
/// copied in slices; where the edges are src and dst, 40 bytes an edge. Written beside and moved
/// into place as convert_dataset does; with `overwrite` a folder of parts is replaced that holds
/// nothing besides. Throws InvalidArgument that names option, expected and given, also for a data
/// set that is a part itself or lies below `output`; IoError where the disk fails or is full.
MEZZO_API PartsReport write_parts(const Dataset& dataset, const at::Tensor& parts,
                                  const std::filesystem::path& output,
                                  const PartsOptions& options = {});

/// What process `rank` of `world_size` loads for `name_or_path`: of a folder of parts its own part,
/// else the same. Throws InvalidArgument where there are not as many parts as processes, IoError
/// for a damaged partition.json.
MEZZO_API std::string part_for_rank(const std::string& name_or_path, std::int64_t rank,
                                    std::int64_t world_size);

namespace data {

/// The file in a folder of parts that names them.
inline constexpr auto kPartitionFile = "partition.json";

/// Whether write_parts has made it.
bool is_folder_of_parts(const std::filesystem::path& path);

/// Throws InvalidArgument where write_parts would for the `output` of a data set that is read at
/// `source`. Creates nothing.
MEZZO_API void check_output_of_parts(const std::filesystem::path& output, bool overwrite,
                                     const std::string& source);

}  // namespace data
}  // namespace mezzo
