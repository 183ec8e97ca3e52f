#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "mezzo/core/export.h"
#include "mezzo/data/npy/npy_stream.h"
#include "mezzo/data/source/graph_source.h"

/// Edges and features of arrays, read in pieces; not for callers of the library.
namespace mezzo::data {

/// Calls `edge(src, dst)` for each column of an integer array [2, E], in order. `open` opens the
/// array; it is called twice where the file holds all sources before all destinations. Throws
/// IoError for another shape and ids outside [0, num_nodes).
MEZZO_API void for_each_edge_of_array(const std::function<NpyStream()>& open,
                                      std::int64_t num_nodes,
                                      const std::function<void(std::int64_t, std::int64_t)>& edge);

/// Hands the rows of a matrix of numbers on in pieces: float16 as they are, all else as float32.
/// A matrix in Fortran order is held in memory whole. Throws IoError for another number of rows
/// than `num_nodes`, and values that are not finite.
MEZZO_API void take_rows_of_array(NpyStream stream, std::int64_t num_nodes,
                                  const GraphSource::TakeRows& take);

/// The rows of a square sparse matrix that scipy's save_npz stored in this format ("csr", "coo").
/// Throws IoError for another format and for a matrix that is not square.
std::int64_t size_of_square(const std::filesystem::path& npz, const std::string& format);

/// Hands the entries (i, j) of such a matrix on, but for those of value 0, as the edges from i to
/// j, in the order of the file. CSR holds the row starts in memory, COO nothing.
void take_entries_of_csr(const std::filesystem::path& npz, std::int64_t num_nodes,
                         const GraphSource::TakeEdges& take);
void take_entries_of_coo(const std::filesystem::path& npz, std::int64_t num_nodes,
                         const GraphSource::TakeEdges& take);

}  // namespace mezzo::data
