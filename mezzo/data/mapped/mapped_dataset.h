#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/dataset.h"

/// A mapped dataset, Mezzo's own format: a folder of a manifest, `mezzo.json`, and .npy files that
/// are mapped to memory. The manifest is an object:
///
///   format "mezzo", version 1, name, num_nodes N, num_edges E, num_features F, num_classes C,
///   metric (a name of Metrics), class_names [C] or [], target (what has the labels: "node", the
///   default, "edge", "graph" or "link"), num_edge_types (1 is the default), and
///   arrays: name -> {"file", "dtype", "shape"}; the file is in the folder.
///
/// Arrays, in C order:
///   indptr           int64 [N + 1]  rows by destination
///   indices          int32 [E], or int64 if N or E (before parallel edges are merged) is 2^31 or
///                    more; sources, ascending in a row
///   features         float32, bfloat16 or float16 [N, F]; bfloat16 is stored as its bits, "<u2"
///   or, if they are sparse: feature_indptr int64 [N + 1], feature_indices int64 [nnz] and
///   feature_values (dtypes as features) [nnz]
///   edge_weights     float32 [E], and edge_features float32 [E, F_e], in the order of the indices
///   graph_offsets    int64 [G + 1], of a set of graphs
///   labels           int64 [T] for T targets, -1 without a label; multi-label data: uint8 [T, C]
///                    of 0, 1, and 255 for a missing entry; numbers: float32 [T, C]; no labels and
///                    no masks if C is 0
///   train_masks, val_masks, test_masks   bool [T, S]
///   edge_types       int64 [E], if there are several
/// Links have no labels, and may have what Dataset describes:
///   message_mask     bool [E]
///   train_negatives  int64 [2, M], and train_negative_src, train_negative_dst int64 [L, K]; the
///                    same of val and test
/// A part of a data set (write_parts) also has, in the manifest, `part`: index, num_parts, hops,
/// num_nodes and num_edges (of the whole); and the arrays of DatasetPart:
///   node_ids, in_degrees, out_degrees   int64 [N]
///   own_mask                            bool [N]
namespace mezzo::data {

inline constexpr auto kManifestFile = "mezzo.json";

/// An array as listed in the manifest.
struct FolderArray {
  std::string file;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
};

/// The entry `part` of a manifest.
struct FolderPart {
  std::int64_t index = 0, num_parts = 1, hops = 1;
  std::int64_t num_nodes = 0, num_edges = 0;  ///< of the whole
};

/// The contents of mezzo.json.
struct FolderManifest {
  std::string name;
  std::int64_t num_nodes = 0, num_edges = 0, num_features = 0, num_classes = 0;
  Metric metric = Metric::kAccuracy;
  TaskTarget target = TaskTarget::kNode;
  std::int64_t num_edge_types = 1;
  std::vector<std::string> class_names = {};
  std::optional<FolderPart> part = {};
  std::map<std::string, FolderArray> arrays = {};
};

/// The files that the manifest of a folder lists, without the manifest. Throws IoError if it is
/// damaged or missing.
MEZZO_API std::vector<std::string> files_of_manifest(const std::filesystem::path& folder);

/// Reads a folder. indptr, indices, edge weights and dense features are mapped to memory, the rest
/// is read; sparse values become float32. Checks the manifest and every file's dtype and length
/// against it; validate() checks the values, except those of dense features, which are checked when
/// the folder is written. Labels without masks get a random split. Throws IoError with the file and
/// the fault.
MEZZO_API Dataset read_mapped_dataset(const std::filesystem::path& folder,
                                      const LoadOptions& options);

}  // namespace mezzo::data
