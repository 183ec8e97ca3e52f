#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "mezzo/core/export.h"
#include "mezzo/data/npy/npy_stream.h"
#include "mezzo/data/source/graph_source.h"

/// Edges and features of arrays, read in chunks; internal.
namespace mezzo::data {

/// Calls `edge(src, dst)` for each column of an integer array [2, E], in order. `open` opens the
/// array; it is called twice if the file holds all sources before all destinations. Throws IoError
/// for another shape and for ids outside [0, num_nodes).
MEZZO_API void for_each_edge_of_array(const std::function<NpyStream()>& open,
                                      std::int64_t num_nodes,
                                      const std::function<void(std::int64_t, std::int64_t)>& edge);

/// Passes the rows of a matrix to `take` in chunks: float16 unchanged, other dtypes as float32.
/// Reads a matrix in Fortran order into memory as a whole. Throws IoError if it does not have
/// `num_nodes` rows or a value is not finite.
MEZZO_API void take_rows_of_array(NpyStream stream, std::int64_t num_nodes,
                                  const GraphSource::TakeRows& take);

/// The number of rows of a square sparse matrix stored by scipy's save_npz in this format ("csr",
/// "coo"). Throws IoError for another format and for a matrix that is not square.
std::int64_t size_of_square(const std::filesystem::path& npz, const std::string& format);

/// Passes the nonzero entries (i, j) of this matrix to `take` as edges from i to j, in file order.
/// Memory: the row starts for CSR, none for COO.
void take_entries_of_csr(const std::filesystem::path& npz, std::int64_t num_nodes,
                         const GraphSource::TakeEdges& take);
void take_entries_of_coo(const std::filesystem::path& npz, std::int64_t num_nodes,
                         const GraphSource::TakeEdges& take);

}  // namespace mezzo::data
