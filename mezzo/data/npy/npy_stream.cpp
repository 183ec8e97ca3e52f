#include "mezzo/data/npy/npy_stream.h"

#include <algorithm>
#include <fstream>

#include <ATen/ATen.h>

#include "mezzo/data/npy/npy.h"
#include "mezzo/data/npy/npz.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::size_t kMaxStreamHeaderBytes = std::size_t{1} << 16;
constexpr std::int64_t kSkipBytes = std::int64_t{1} << 20;

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
  MemberBytes(const std::filesystem::path& npz, const std::string& key)
      : file_(npz), member_(file_.open(key)) {}
  std::uint64_t size() const override { return member_.size; }
  std::size_t read(char* target, std::size_t count) override { return member_.read(target, count); }

 private:
  NpzFile file_;
  NpzMember member_;
};

NpyStream::NpyStream(const std::filesystem::path& path)
    : where_(path.string()), bytes_(std::make_unique<FileBytes>(path)) {
  read_header();
}

NpyStream::NpyStream(const std::filesystem::path& npz, const std::string& key)
    : where_(npz.string() + ": " + key), bytes_(std::make_unique<MemberBytes>(npz, key)) {
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
  std::string start(kNpyStartBytes, '\0');
  read_exactly(start.data(), start.size());
  const std::size_t length = std::max(npy_header_bytes(start, where_), kNpyStartBytes);
  require(length <= kMaxStreamHeaderBytes, where_, "damaged npy header: it claims {} bytes",
          length);
  start.resize(length);
  read_exactly(start.data() + kNpyStartBytes, length - kNpyStartBytes);
  const NpyHeader header = parse_npy_header(start, where_);

  descr_ = header.descr;
  tensor_from_bytes(descr_, {0}, ArrayOrder::kC, {}, where_);  // refuses what is not read
  item_bytes_ = descr_.back() - '0';
  is_fortran_ = header.order == ArrayOrder::kFortran;
  shape_ = header.shape;
  numel_ = count_items(shape_, item_bytes_, bytes_->size() - header.data_begin, where_);
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

}  // namespace mezzo::data
