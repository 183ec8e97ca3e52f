#include <algorithm>
#include <cmath>
#include <fstream>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>

#include "mezzo/core/random.h"
#include "mezzo/data/mapped_file.h"
#include "mezzo/data/npy.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::int64_t kMaxColumns = std::int64_t{1} << 31;
constexpr std::int64_t kMaxUndirectedNodes = std::int64_t{1} << 31;
constexpr std::int64_t kMaxClassesOfFewNodes = std::int64_t{1} << 16;
constexpr std::uint64_t kSplitStream = 0x53504C4954;  // "SPLIT"

/// libtorch says once a process that its sparse CSR tensors are in beta; users cannot act on that.
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

/// Sorts each row by column and adds up the entries of one place.
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

void require_edge(std::int64_t src, std::int64_t dst, std::int64_t num_nodes,
                  const std::string& where) {
  require(src >= 0 && src < num_nodes && dst >= 0 && dst < num_nodes, where,
          "an edge from node {} to node {}, outside [0, {})", src, dst, num_nodes);
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
  at::Tensor narrow = tensor.to(at::kFloat).contiguous();
  if (tensor.scalar_type() != at::kDouble) return narrow;
  const auto* value = narrow.const_data_ptr<float>();
  for (std::int64_t i = 0; i < narrow.numel(); ++i) {
    if (!std::isinf(value[i])) continue;
    const auto wide = tensor.reshape(-1)[i].item<double>();
    require(std::isinf(wide), where, "value {} is {}, beyond the range of float32", i, wide);
  }
  return narrow;
}

at::Tensor as_mask(const at::Tensor& tensor, const std::string& where) {
  if (tensor.scalar_type() == at::kBool) return tensor;
  const bool integers = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
  const at::Tensor values = integers ? tensor.to(at::kLong) : tensor;
  require(integers && values.eq(0).logical_or(values.eq(1)).all().item<bool>(), where,
          "expected booleans, or integers 0 and 1");
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

void set_undirected_edges(Dataset& dataset, const std::vector<Edge>& edges,
                          const std::string& where) {
  require(dataset.num_nodes <= kMaxUndirectedNodes, where, "more than 2^31 nodes");
  std::vector<std::uint64_t> keys;
  keys.reserve(2 * edges.size());
  for (const auto& [src, dst] : edges) {
    require_edge(src, dst, dataset.num_nodes, where);
    if (src == dst) continue;
    keys.push_back(static_cast<std::uint64_t>(src) << 32 | static_cast<std::uint64_t>(dst));
    keys.push_back(static_cast<std::uint64_t>(dst) << 32 | static_cast<std::uint64_t>(src));
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  const auto count = static_cast<std::int64_t>(keys.size());
  dataset.src = at::empty({count}, at::kLong);
  dataset.dst = at::empty({count}, at::kLong);
  auto* src = dataset.src.mutable_data_ptr<std::int64_t>();
  auto* dst = dataset.dst.mutable_data_ptr<std::int64_t>();
  for (const std::uint64_t key : keys) {
    *src++ = static_cast<std::int64_t>(key >> 32);
    *dst++ = static_cast<std::int64_t>(key & 0xFFFFFFFF);
  }
}

void set_directed_edges(Dataset& dataset, const std::vector<Edge>& edges,
                        const std::string& where) {
  const auto count = static_cast<std::int64_t>(edges.size());
  dataset.src = at::empty({count}, at::kLong);
  dataset.dst = at::empty({count}, at::kLong);
  auto* src = dataset.src.mutable_data_ptr<std::int64_t>();
  auto* dst = dataset.dst.mutable_data_ptr<std::int64_t>();
  for (const auto& [from, to] : edges) {
    require_edge(from, to, dataset.num_nodes, where);
    *src++ = from;
    *dst++ = to;
  }
}

void require_room(std::int64_t num_nodes, const std::string& where) {
  constexpr std::uint64_t kBytesPerNode = 16;
  const std::uint64_t memory = memory_of_the_machine();
  require(static_cast<std::uint64_t>(num_nodes) <= memory / kBytesPerNode, where,
          "it declares {} nodes, for which the {} bytes of this machine's memory are too few",
          num_nodes, memory);
}

std::int64_t most_classes(std::int64_t num_nodes) {
  return std::max(num_nodes, kMaxClassesOfFewNodes);
}

void set_labels(Dataset& dataset, const at::Tensor& labels, std::optional<std::int64_t> declared,
                const std::string& where) {
  const bool column = labels.dim() == 2 && labels.size(1) == 1;
  require((labels.dim() == 1 || column) && labels.numel() > 0, where,
          "expected one label a node, [N] or [N, 1] with N > 0, got shape {}", shape_text(labels));
  dataset.labels = as_int64(labels, where).reshape(-1);
  dataset.num_nodes = labels.numel();
  const auto* label = dataset.labels.const_data_ptr<std::int64_t>();
  const auto [least, most] = std::minmax_element(label, label + dataset.num_nodes);
  require(*least >= 0, where, "node {} has the negative label {}", least - label, *least);
  const std::int64_t limit = most_classes(dataset.num_nodes);
  require(*most < limit, where, "node {} has label {}, beyond any sensible number of classes",
          most - label, *most);
  dataset.num_classes = declared.value_or(*most + 1);
  require(dataset.num_classes > *most && dataset.num_classes <= limit, where,
          "{} classes are declared, the largest label is {} (node {})", dataset.num_classes, *most,
          most - label);
}

at::Tensor set_some_labels(Dataset& dataset, const at::Tensor& labels,
                           std::optional<std::int64_t> declared, const std::string& where) {
  const at::Tensor values = as_int64(labels, where);
  const at::Tensor without = values.eq(kNoLabel);
  set_labels(dataset, values.masked_fill(without, 0), declared, where);
  require(!without.all().item<bool>(), where, "no node has a label");
  dataset.labels = values.reshape(-1);
  return without.logical_not().reshape(-1);
}

at::Tensor set_entries(Dataset& dataset, const at::Tensor& entries, const std::string& where) {
  require(entries.dim() == 2 && entries.numel() > 0 && !entries.is_complex(), where,
          "expected real numbers [N, C] with N, C > 0, got shape {}", shape_text(entries));
  // Neither -1 nor 255 is a number of every dtype of 8 bits.
  const at::Tensor values =
      c10::elementSize(entries.scalar_type()) == 1 ? entries.to(at::kShort) : entries;
  const at::Tensor missing =
      values.ne(values).logical_or_(values.eq(-1)).logical_or_(values.eq(kNoEntry));
  const at::Tensor bad =
      values.eq(0).logical_or_(values.eq(1)).logical_or_(missing).logical_not_().nonzero();
  if (bad.size(0) > 0) {
    const auto node = bad[0][0].item<std::int64_t>(), one = bad[0][1].item<std::int64_t>();
    detail::raise<IoError>("{}: node {} has {} for class {}, expected 0 or 1, or -1 for none",
                           where, node, values[node][one].item<double>(), one);
  }
  dataset.labels = values.masked_fill(missing, kNoEntry).to(at::kByte).contiguous();
  dataset.num_nodes = entries.size(0);
  dataset.num_classes = entries.size(1);
  const at::Tensor has_label = dataset.has_label();
  require(has_label.any().item<bool>(), where, "no node has a label");
  return has_label;
}

void clear_unlabelled(Dataset& dataset, const at::Tensor& has_label) {
  if (has_label.all().item<bool>()) return;
  for (at::Tensor* masks : {&dataset.train_masks, &dataset.val_masks, &dataset.test_masks}) {
    *masks = masks->logical_and(has_label.unsqueeze(1));
  }
}

void set_random_split(Dataset& dataset, std::uint64_t seed) {
  const std::int64_t count = dataset.num_nodes;
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    // Inside-out shuffle: node i goes to a random place of the first i + 1.
    const auto place = random_below(static_cast<std::uint64_t>(i) + 1, seed, kSplitStream,
                                    static_cast<std::uint64_t>(i));
    order[static_cast<std::size_t>(i)] = order[place];
    order[place] = i;
  }
  const std::int64_t num_train = count * 3 / 5;
  const std::int64_t num_val = count / 5;
  const auto mask_of = [&](std::int64_t begin, std::int64_t end) {
    at::Tensor mask = at::zeros({count, 1}, at::kBool);
    for (std::int64_t i = begin; i < end; ++i) {
      mask.mutable_data_ptr<bool>()[order[static_cast<std::size_t>(i)]] = true;
    }
    return mask;
  };
  dataset.train_masks = mask_of(0, num_train);
  dataset.val_masks = mask_of(num_train, num_train + num_val);
  dataset.test_masks = mask_of(num_train + num_val, count);
}

void refuse_named_split(const LoadOptions& options, const std::string& where) {
  MEZZO_CHECK(options.split.empty(),
              "split: '{}' is not a split of {}, which has the default split only", options.split,
              where);
}

}  // namespace mezzo::data
