#include "mezzo/data/source/array_pieces.h"

#include <algorithm>
#include <optional>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/data/npy/npz.h"
#include "mezzo/data/readers.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

/// The columns of a sparse matrix and whether each entry is 0, read side by side.
class EntryStream {
 public:
  EntryStream(const std::filesystem::path& npz, const std::string& key, std::int64_t num_columns)
      : columns_(npz, key), values_(npz, "data"), num_columns_(num_columns) {
    require(values_.numel() == columns_.numel(), values_.where(), "{} values for {} entries",
            values_.numel(), columns_.numel());
  }

  std::int64_t size() const { return columns_.numel(); }

  /// Calls take(entry, column, is_zero) for each entry.
  template <class Take>
  void run(Take&& take) {
    for (std::int64_t begin = 0; begin < size(); begin += kPieceEdges) {
      const std::int64_t count = std::min(kPieceEdges, size() - begin);
      const at::Tensor columns = as_int64(columns_.next(count), columns_.where());
      const at::Tensor zeros = values_.next(count).eq(0);
      const auto* column = columns.const_data_ptr<std::int64_t>();
      const bool* zero = zeros.const_data_ptr<bool>();
      for (std::int64_t i = 0; i < count; ++i) {
        require(column[i] >= 0 && column[i] < num_columns_, columns_.where(),
                "item {} is {}, outside [0, {})", begin + i, column[i], num_columns_);
        take(begin + i, column[i], zero[i]);
      }
    }
  }

 private:
  NpyStream columns_, values_;
  std::int64_t num_columns_;
};

/// The transpose of a matrix in Fortran order, [width, num_rows]: float16 unchanged, other
/// dtypes as float32. Copies column by column, which needs only one copy.
at::Tensor read_columns(NpyStream& stream, std::int64_t num_rows, std::int64_t width) {
  at::Tensor columns;
  for (std::int64_t i = 0; i < width; ++i) {
    at::Tensor column = stream.next(num_rows);
    if (column.scalar_type() != at::kHalf) column = as_float32(column, stream.where());
    if (!columns.defined()) columns = at::empty({width, num_rows}, column.options());
    columns[i].copy_(column);
  }
  return columns;
}

}  // namespace

void for_each_edge_of_array(const std::function<NpyStream()>& open, std::int64_t num_nodes,
                            const std::function<void(std::int64_t, std::int64_t)>& edge) {
  NpyStream first = open();
  const std::vector<std::int64_t> shape = first.shape();
  const std::string where = first.where();
  require(shape.size() == 2 && shape[0] == 2, where, "expected shape [2, E], got [{}]",
          fmt::join(shape, ", "));
  const std::int64_t count = shape[1];
  const bool pairs = first.is_fortran();  // source and destination of an edge side by side
  std::optional<NpyStream> second;
  if (!pairs) {
    second.emplace(open());
    second->skip(count);
  }
  for (std::int64_t begin = 0; begin < count; begin += kPieceEdges) {
    const std::int64_t size = std::min(kPieceEdges, count - begin);
    const at::Tensor src = as_int64(first.next(pairs ? 2 * size : size), where);
    const at::Tensor dst = pairs ? src : as_int64(second->next(size), where);
    const auto* s = src.const_data_ptr<std::int64_t>();
    const auto* d = dst.const_data_ptr<std::int64_t>() + (pairs ? 1 : 0);
    const std::int64_t stride = pairs ? 2 : 1;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t from = s[i * stride], to = d[i * stride];
      require(from >= 0 && from < num_nodes && to >= 0 && to < num_nodes, where,
              "edge {} joins {} and {}, outside [0, {})", begin + i, from, to, num_nodes);
      edge(from, to);
    }
  }
}

void take_rows_of_array(NpyStream stream, std::int64_t num_nodes,
                        const GraphSource::TakeRows& take) {
  const std::string& where = stream.where();
  check_feature_shape(stream.shape(), num_nodes, where);
  const std::int64_t width = stream.shape()[1];
  const bool by_columns = stream.is_fortran() && width > 1 && num_nodes > 1;
  const at::Tensor columns = by_columns ? read_columns(stream, num_nodes, width) : at::Tensor();
  const std::int64_t step = rows_of_piece(width);
  for (std::int64_t begin = 0; begin < num_nodes && width > 0; begin += step) {
    const std::int64_t rows = std::min(step, num_nodes - begin);
    at::Tensor piece = by_columns ? columns.narrow(1, begin, rows).t().contiguous()
                                  : stream.next(rows * width).view({rows, width});
    if (piece.scalar_type() != at::kHalf) piece = as_float32(piece, where);
    if (!at::isfinite(piece).all().item<bool>()) [[unlikely]] {
      const at::Tensor bad = at::isfinite(piece).all(1).logical_not().nonzero();
      detail::raise<IoError>("{}: row {} holds a value that is not finite", where,
                             begin + bad[0][0].item<std::int64_t>());
    }
    take(piece);
  }
}

std::int64_t size_of_square(const std::filesystem::path& npz, const std::string& format) {
  const NpzFile file(npz);
  const std::vector<std::string> stored = file.text("format");
  require(stored.size() == 1 && stored[0] == format, file.where("format"),
          "'{}', expected a sparse matrix in format '{}'", fmt::join(stored, " "), format);
  const at::Tensor shape = as_int64(file.numbers("shape"), file.where("shape"));
  require(shape.numel() == 2, file.where("shape"), "expected rows and columns, got {} items",
          shape.numel());
  const auto* size = shape.const_data_ptr<std::int64_t>();
  require(size[0] > 0 && size[0] == size[1], file.where("shape"),
          "a matrix of shape [{}, {}] is no graph, expected a square one", size[0], size[1]);
  require(size[0] <= kMostNodes, file.where("shape"), "{} nodes, expected at most 2^48", size[0]);
  return size[0];
}

void take_entries_of_csr(const std::filesystem::path& npz, std::int64_t num_nodes,
                         const GraphSource::TakeEdges& take) {
  const NpzFile file(npz);
  EntryStream entries(npz, "indices", num_nodes);
  const std::string where = file.where("indptr");
  const at::Tensor indptr = as_int64(file.numbers("indptr"), where);
  require(indptr.dim() == 1 && indptr.numel() == num_nodes + 1, where,
          "expected shape [{} + 1], got {}", num_nodes, shape_text(indptr));
  const auto* start = indptr.const_data_ptr<std::int64_t>();
  require(start[0] == 0 && start[num_nodes] == entries.size(), where,
          "expected to run from 0 to {}, got {} to {}", entries.size(), start[0], start[num_nodes]);
  for (std::int64_t row = 0; row < num_nodes; ++row) {
    require(start[row] <= start[row + 1], where, "it decreases after row {}", row);
  }
  EdgePieces pieces(take);
  std::int64_t row = 0;
  entries.run([&](std::int64_t entry, std::int64_t column, bool is_zero) {
    while (start[row + 1] <= entry) ++row;
    if (!is_zero) pieces.add(row, column);
  });
  pieces.finish();
}

void take_entries_of_coo(const std::filesystem::path& npz, std::int64_t num_nodes,
                         const GraphSource::TakeEdges& take) {
  EntryStream entries(npz, "col", num_nodes);
  NpyStream rows(npz, "row");
  require(rows.numel() == entries.size(), rows.where(), "{} rows for {} columns", rows.numel(),
          entries.size());
  EdgePieces pieces(take);
  at::Tensor piece;
  entries.run([&](std::int64_t entry, std::int64_t column, bool is_zero) {
    const std::int64_t place = entry % kPieceEdges;
    if (place == 0) {
      piece = as_int64(rows.next(std::min(kPieceEdges, entries.size() - entry)), rows.where());
    }
    const std::int64_t row = piece.const_data_ptr<std::int64_t>()[place];
    require(row >= 0 && row < num_nodes, rows.where(), "item {} is {}, outside [0, {})", entry, row,
            num_nodes);
    if (!is_zero) pieces.add(row, column);
  });
  pieces.finish();
}

}  // namespace mezzo::data
