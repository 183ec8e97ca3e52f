#include "mezzo/data/npy/npy_stream.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <zip.h>

#include "mezzo/data/npy/npy.h"
#include "mezzo/data/npy/npz.h"
#include "mezzo/data/readers.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

constexpr std::size_t kNpyPrefixBytes = 12;  // magic, version, and the longer form of the length
constexpr std::size_t kMaxStreamHeaderBytes = std::size_t{1} << 16;
constexpr std::int64_t kSkipBytes = std::int64_t{1} << 20;

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

/// The transpose of a matrix in Fortran order, [width, num_rows]: float16 as it is, all else as
/// float32. Column by column, so that there is one copy.
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

/// The bytes of a file, in order.
class NpyStream::Bytes {
 public:
  virtual ~Bytes() = default;
  /// How many there are in all.
  virtual std::uint64_t size() const = 0;
  /// Reads up to `count`; 0 at the end.
  virtual std::size_t read(char* target, std::size_t count) = 0;
  /// Passes over `count` bytes and returns true, or returns false: they have to be read.
  virtual bool seek_forward(std::uint64_t /*count*/) { return false; }
};

class NpyStream::FileBytes : public NpyStream::Bytes {
 public:
  explicit FileBytes(const std::filesystem::path& path)
      : size_(regular_file_bytes(path)), file_(path, std::ios::binary) {
    require(file_.is_open(), path.string(), "cannot be opened for reading");
  }
  std::uint64_t size() const override { return size_; }
  std::size_t read(char* target, std::size_t count) override {
    file_.read(target, static_cast<std::streamsize>(count));
    return static_cast<std::size_t>(file_.gcount());
  }
  bool seek_forward(std::uint64_t count) override {
    file_.seekg(static_cast<std::streamoff>(count), std::ios::cur);
    return true;
  }

 private:
  std::uint64_t size_;
  std::ifstream file_;
};

class NpyStream::MemberBytes : public NpyStream::Bytes {
 public:
  MemberBytes(const std::filesystem::path& path, const std::string& key, const std::string& where)
      : where_(where) {
    regular_file_bytes(path);
    archive_.reset(zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, nullptr));
    require(archive_ != nullptr, path.string(), "not a readable npz (zip) file");
    const zip_int64_t index = zip_name_locate(archive_.get(), (key + ".npy").c_str(), 0);
    require(index >= 0, where_, "the array is missing");
    zip_stat_t entry;
    require(zip_stat_index(archive_.get(), static_cast<zip_uint64_t>(index), 0, &entry) == 0 &&
                (entry.valid & ZIP_STAT_SIZE) != 0,
            where_, "unreadable zip member");
    size_ = entry.size;
    member_.reset(zip_fopen_index(archive_.get(), static_cast<zip_uint64_t>(index), 0));
    require(member_ != nullptr, where_, "unreadable zip member: {}", zip_strerror(archive_.get()));
  }
  std::uint64_t size() const override { return size_; }
  std::size_t read(char* target, std::size_t count) override {
    const zip_int64_t got = zip_fread(member_.get(), target, count);
    require(got >= 0, where_, "damaged zip member: {}", zip_file_strerror(member_.get()));
    return static_cast<std::size_t>(got);
  }

 private:
  std::string where_;
  struct ArchiveCloser {
    void operator()(zip_t* archive) const { zip_discard(archive); }
  };
  struct MemberCloser {
    void operator()(zip_file_t* file) const { zip_fclose(file); }
  };

  std::unique_ptr<zip_t, ArchiveCloser> archive_;
  std::unique_ptr<zip_file_t, MemberCloser> member_;  // closed before its archive
  std::uint64_t size_ = 0;
};

NpyStream::NpyStream(const std::filesystem::path& path)
    : where_(path.string()), bytes_(std::make_unique<FileBytes>(path)) {
  read_header();
}

NpyStream::NpyStream(const std::filesystem::path& npz, const std::string& key)
    : where_(npz.string() + ": " + key), bytes_(std::make_unique<MemberBytes>(npz, key, where_)) {
  read_header();
}

NpyStream::~NpyStream() = default;
NpyStream::NpyStream(NpyStream&&) noexcept = default;

void NpyStream::read_exactly(char* target, std::size_t count) {
  std::size_t done = 0;
  while (done < count) {
    const std::size_t got = bytes_->read(target + done, count - done);
    require(got > 0, where_, "the data end too early: the file is truncated");
    done += got;
  }
}

void NpyStream::read_header() {
  std::string start(kNpyPrefixBytes, '\0');
  read_exactly(start.data(), start.size());
  require(start.starts_with("\x93NUMPY"), where_, "not an npy file (no \\x93NUMPY at its start)");
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(start[i]); };
  const std::size_t prefix = byte(6) == 1 ? 10 : 12;  // version 1 has a shorter length
  std::size_t length = 0;
  for (std::size_t i = prefix; i-- > 8;) length = length * 256 + byte(i);
  length = std::max(length + prefix, kNpyPrefixBytes);
  require(length <= kMaxStreamHeaderBytes, where_, "damaged npy header: it claims {} bytes",
          length);
  start.resize(length);
  read_exactly(start.data() + kNpyPrefixBytes, length - kNpyPrefixBytes);
  const NpyHeader header = parse_npy_header(start, where_);

  descr_ = header.descr;
  tensor_from_bytes(descr_, {0}, ArrayOrder::kC, {}, where_);  // refuses what is not read
  item_bytes_ = descr_.back() - '0';
  is_fortran_ = header.order == ArrayOrder::kFortran;
  shape_ = header.shape;
  std::int64_t num_bytes = item_bytes_;
  for (const std::int64_t size : shape_) {
    require(!__builtin_mul_overflow(num_bytes, size, &num_bytes), where_,
            "the shape [{}] overflows", fmt::join(shape_, ", "));
  }
  numel_ = num_bytes / item_bytes_;
  const std::uint64_t expected = header.data_begin + static_cast<std::uint64_t>(num_bytes);
  require(bytes_->size() == expected, where_, "the shape [{}] needs {} bytes in all, it has {}",
          fmt::join(shape_, ", "), expected, bytes_->size());
}

/// Moves past `count` items; behind the last one it makes sure that nothing follows.
void NpyStream::pass(std::int64_t count) {
  position_ += count;
  if (position_ < numel_ || count == 0) return;
  char more = 0;
  require(bytes_->read(&more, 1) == 0, where_, "more data than its header says");
}

at::Tensor NpyStream::next(std::int64_t count) {
  MEZZO_CHECK(count >= 0 && count <= numel_ - position_, "{}: asked for {} items where {} are left",
              where_, count, numel_ - position_);
  std::string bytes(static_cast<std::size_t>(count * item_bytes_), '\0');
  read_exactly(bytes.data(), bytes.size());
  pass(count);
  return tensor_from_bytes(descr_, {count}, ArrayOrder::kC, bytes, where_);
}

void NpyStream::skip(std::int64_t count) {
  MEZZO_CHECK(count >= 0 && count <= numel_ - position_,
              "{}: asked to skip {} items where {} are left", where_, count, numel_ - position_);
  std::int64_t left = count * item_bytes_;
  if (!bytes_->seek_forward(static_cast<std::uint64_t>(left))) {
    std::string discarded(static_cast<std::size_t>(std::min(left, kSkipBytes)), '\0');
    while (left > 0) {
      const std::int64_t step = std::min(left, kSkipBytes);
      read_exactly(discarded.data(), static_cast<std::size_t>(step));
      left -= step;
    }
  }
  pass(count);
}

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
