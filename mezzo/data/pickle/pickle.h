#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

/// Python pickles of numbers, as in the Planetoid files and in those of torch.save (torch_file.h).
/// Reading one runs no code: the reader supports the opcodes of protocol 2 that build numbers,
/// strings, tuples, lists, dicts, numpy arrays, tensors and scipy CSR matrices, and the names in
/// pickle_objects.cpp. Anything else is an IoError that begins with `where` and reports the offset.
/// Memory and time are bounded by a multiple of the file's size.
namespace mezzo::data {

/// The array that the pickle holds; see tensor_from_bytes. On the CPU.
MEZZO_API at::Tensor unpickle_array(std::string_view bytes, const std::string& where);

/// The scipy CSR matrix that the pickle holds: sparse CSR, float32, int64 indices, sorted rows.
MEZZO_API at::Tensor unpickle_csr(std::string_view bytes, const std::string& where);

/// The lists of neighbours of a pickled dict {node: [node, ...]}.
struct PickledGraph {
  std::int64_t num_nodes = 0;                                ///< keys of the dict
  std::vector<std::pair<std::int64_t, std::int64_t>> edges;  ///< (key, item), ids not checked
};

/// The graph that the pickle holds. Throws IoError for other contents and repeated keys.
MEZZO_API PickledGraph unpickle_graph(std::string_view bytes, const std::string& where);

}  // namespace mezzo::data
