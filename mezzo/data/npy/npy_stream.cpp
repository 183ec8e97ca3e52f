#include "mezzo/data/npy/npy_stream.h"

#include <algorithm>
#include <fstream>
#include <memory>

#include <ATen/ATen.h>

#include "mezzo/data/npy/npy.h"
#include "mezzo/data/npy/npz.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::size_t kMaxStreamHeaderBytes = std::size_t{1} << 16;
constexpr std::int64_t kSkipBytes = std::int64_t{1} << 20;

}  // namespace

NpyStream::NpyStream(const std::filesystem::path& path)
    : where_(path.string()), bytes_(regular_file_bytes(path)) {
  const auto file = std::make_shared<std::ifstream>(path, std::ios::binary);
  require(file->is_open(), where_, "cannot be opened for reading");
  read_ = [file](char* target, std::size_t count) {
    file->read(target, static_cast<std::streamsize>(count));
    return static_cast<std::size_t>(file->gcount());
  };
  seek_ = [file](std::int64_t count) { file->seekg(count, std::ios::cur); };
  read_header();
}

NpyStream::NpyStream(const std::filesystem::path& npz, const std::string& key)
    : where_(npz.string() + ": " + key) {
  struct Open {
    NpzFile file;
    ZipEntry member;  // closed before its file
  };
  const auto open = std::make_shared<Open>(Open{.file = NpzFile(npz), .member = {}});
  open->member = open->file.open(key);
  bytes_ = open->member.size;
  read_ = [open](char* target, std::size_t count) { return open->member.read(target, count); };
  read_header();
}

void NpyStream::read_exactly(char* target, std::size_t count) {
  std::size_t done = 0;
  while (done < count) {
    const std::size_t got = read_(target + done, count - done);
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
  tensor_from_bytes(descr_, {0}, ArrayOrder::kC, {}, where_);  // rejects unsupported dtypes
  item_bytes_ = descr_.back() - '0';
  is_fortran_ = header.order == ArrayOrder::kFortran;
  shape_ = header.shape;
  numel_ = count_items(shape_, item_bytes_, bytes_ - header.data_begin, where_);
}

/// Advances by `count` items; after the last one checks that the file ends.
void NpyStream::pass(std::int64_t count) {
  position_ += count;
  if (position_ < numel_ || count == 0) return;
  char more = 0;
  require(read_(&more, 1) == 0, where_, "more data than its header says");
}

at::Tensor NpyStream::next(std::int64_t count) {
  MEZZO_CHECK(count >= 0 && count <= numel_ - position_, "{}: {} items requested, {} remain",
              where_, count, numel_ - position_);
  std::string bytes(static_cast<std::size_t>(count * item_bytes_), '\0');
  read_exactly(bytes.data(), bytes.size());
  pass(count);
  return tensor_from_bytes(descr_, {count}, ArrayOrder::kC, bytes, where_);
}

void NpyStream::skip(std::int64_t count) {
  MEZZO_CHECK(count >= 0 && count <= numel_ - position_, "{}: cannot skip {} items, {} remain",
              where_, count, numel_ - position_);
  std::int64_t left = count * item_bytes_;
  if (seek_) {
    seek_(left);
  } else {
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
