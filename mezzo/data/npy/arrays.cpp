#include <algorithm>
#include <cmath>
#include <fstream>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include "mezzo/data/npy/npy.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::int64_t kMaxColumns = std::int64_t{1} << 31;

/// Suppresses libtorch's warning that sparse CSR tensors are in beta, which users cannot change.
class QuietHandler : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

at::Tensor sparse_csr(const at::Tensor& indptr, const at::Tensor& indices, const at::Tensor& values,
                      std::int64_t rows, std::int64_t cols) {
  QuietHandler quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  return at::_sparse_csr_tensor_unsafe(indptr, indices, values, {rows, cols},
                                       values.options().layout(at::kSparseCsr));
}

bool rows_ascend(const std::int64_t* indptr, std::int64_t rows, const std::int64_t* indices) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = indptr[row] + 1; k < indptr[row + 1]; ++k) {
      if (indices[k] <= indices[k - 1]) return false;
    }
  }
  return true;
}

/// Sorts each row by column and adds duplicate entries.
at::Tensor canonical_csr(std::int64_t rows, std::int64_t cols, const at::Tensor& indptr,
                         const at::Tensor& indices, const at::Tensor& values) {
  const auto* begin = indptr.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> out_indptr = {0};
  std::vector<std::int64_t> out_indices;
  std::vector<float> out_values;
  std::vector<std::pair<std::int64_t, float>> row_entries;
  for (std::int64_t row = 0; row < rows; ++row) {
    row_entries.clear();
    for (std::int64_t k = begin[row]; k < begin[row + 1]; ++k) {
      row_entries.emplace_back(indices.const_data_ptr<std::int64_t>()[k],
                               values.const_data_ptr<float>()[k]);
    }
    std::stable_sort(row_entries.begin(), row_entries.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    const std::size_t row_start = out_indices.size();
    for (const auto& [column, value] : row_entries) {
      if (out_indices.size() > row_start && out_indices.back() == column) {
        out_values.back() += value;
      } else {
        out_indices.push_back(column);
        out_values.push_back(value);
      }
    }
    out_indptr.push_back(static_cast<std::int64_t>(out_indices.size()));
  }
  return sparse_csr(at::tensor(out_indptr, at::kLong), at::tensor(out_indices, at::kLong),
                    at::tensor(out_values, at::kFloat), rows, cols);
}

}  // namespace

std::string libtorch_fault(std::string_view what, const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  const bool out_of_memory = text.find("can't allocate memory") != std::string::npos;
  return out_of_memory ? "does not fit in memory" : fmt::format("{}: {}", what, text);
}

std::uint64_t regular_file_bytes(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  require(std::filesystem::exists(status), path.string(), "no such file");
  require(std::filesystem::is_regular_file(status), path.string(), "not a regular file");
  const std::uint64_t bytes = std::filesystem::file_size(path, error);
  require(!error, path.string(), "{}", error.message());
  return bytes;
}

std::string read_file(const std::filesystem::path& path) {
  const std::uint64_t size = regular_file_bytes(path);
  std::ifstream file(path, std::ios::binary);
  require(file.is_open(), path.string(), "cannot be opened for reading");
  std::string bytes(size, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  require(static_cast<std::uint64_t>(file.gcount()) == size, path.string(),
          "read {} of its {} bytes", file.gcount(), size);
  return bytes;
}

at::Tensor read_npy(const std::filesystem::path& path) {
  return parse_npy(read_file(path), path.string());
}

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "));
}

at::Tensor as_int64(const at::Tensor& tensor, const std::string& where) {
  require(at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false), where,
          "expected integers, got {}", c10::getDtypeNames(tensor.scalar_type()).first);
  return tensor.to(at::kLong).contiguous();
}

at::Tensor as_float32(const at::Tensor& tensor, const std::string& where) {
  require(!tensor.is_complex(), where, "expected real numbers");
  at::Tensor values = tensor.to(at::kFloat).contiguous();
  if (tensor.scalar_type() != at::kDouble) return values;
  const auto* value = values.const_data_ptr<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    if (!std::isinf(value[i])) continue;
    const auto original = tensor.reshape(-1)[i].item<double>();
    require(std::isinf(original), where, "value {} is {}, beyond the range of float32", i,
            original);
  }
  return values;
}

at::Tensor as_mask(const at::Tensor& tensor, const std::string& where) {
  if (tensor.scalar_type() == at::kBool) return tensor;
  const bool integers = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
  require(integers, where, "expected booleans, or integers 0 and 1, got {}",
          c10::getDtypeNames(tensor.scalar_type()).first);
  const at::Tensor values = tensor.to(at::kLong);
  const at::Tensor others = values.masked_select(values.ne(0).logical_and(values.ne(1)));
  require(others.numel() == 0, where, "expected booleans, or integers 0 and 1, got {}",
          others.numel() == 0 ? 0 : others[0].item<std::int64_t>());
  return values.to(at::kBool);
}

at::Tensor make_csr(std::int64_t rows, std::int64_t cols, const at::Tensor& indptr,
                    const at::Tensor& indices, const at::Tensor& values, const std::string& where) {
  require(rows >= 0 && cols >= 0 && cols <= kMaxColumns, where,
          "a matrix of shape [{}, {}], expected sizes that are not negative and at most 2^31 "
          "columns",
          rows, cols);
  require(indptr.dim() == 1 && rows < indptr.numel() && indptr.numel() == rows + 1, where,
          "indptr: expected shape [{} + 1], got {}", rows, shape_text(indptr));
  require(indices.dim() == 1 && indices.sizes() == values.sizes(), where,
          "indices and data: expected one shape [nnz], got {} and {}", shape_text(indices),
          shape_text(values));
  const at::Tensor starts = as_int64(indptr, where + ": indptr");
  const at::Tensor columns = as_int64(indices, where + ": indices");
  const at::Tensor numbers = as_float32(values, where + ": data");
  const auto* start = starts.const_data_ptr<std::int64_t>();
  const auto* column = columns.const_data_ptr<std::int64_t>();
  require(start[0] == 0 && start[rows] == columns.numel(), where,
          "indptr: expected to run from 0 to {}, got {} to {}", columns.numel(), start[0],
          start[rows]);
  for (std::int64_t row = 0; row < rows; ++row) {
    require(start[row] <= start[row + 1], where, "indptr decreases after row {}", row);
  }
  for (std::int64_t k = 0; k < columns.numel(); ++k) {
    require(column[k] >= 0 && column[k] < cols, where, "indices: item {} is {}, outside [0, {})", k,
            column[k], cols);
  }
  if (rows_ascend(start, rows, column)) return sparse_csr(starts, columns, numbers, rows, cols);
  return canonical_csr(rows, cols, starts, columns, numbers);
}

at::Tensor read_csr(const NpzFile& file, const std::string& prefix) {
  const std::string where = file.where(prefix.empty() ? "CSR matrix" : prefix + "*");
  if (file.contains(prefix + "format")) {
    const std::vector<std::string> format = file.text(prefix + "format");
    require(format == std::vector<std::string>{"csr"}, where, "format '{}', expected 'csr'",
            fmt::join(format, ", "));
  }
  const at::Tensor shape = as_int64(file.numbers(prefix + "shape"), file.where(prefix + "shape"));
  require(shape.dim() == 1 && shape.numel() == 2, file.where(prefix + "shape"),
          "expected 2 numbers, got shape {}", shape_text(shape));
  const auto* sizes = shape.const_data_ptr<std::int64_t>();
  return make_csr(sizes[0], sizes[1], file.numbers(prefix + "indptr"),
                  file.numbers(prefix + "indices"), file.numbers(prefix + "data"), where);
}

}  // namespace mezzo::data
