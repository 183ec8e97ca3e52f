// IDX files, the format of MNIST: a magic number (two zero bytes, the item type, the number of
// dimensions), each dimension as a big-endian 32-bit integer, then the items in C order.
#include <algorithm>
#include <limits>
#include <new>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include "mezzo/data/image_dataset.h"
#include "mezzo/data/readers.h"

namespace mezzo {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kUnsignedBytes = 0x08;  // the item type, the magic number's third byte
constexpr std::int64_t kClasses = 10;

/// The first `most` bytes of the contents of a gzip file (of one or several members), or all if
/// there are fewer. Checks the checksums of the members it reads.
class Inflater {
 public:
  explicit Inflater(const std::string& where) : where_(where) {
    constexpr int kGzip = 15 + 16;  // the largest window, in zlib's gzip format
    data::require(inflateInit2(&stream_, kGzip) == Z_OK, where_, "zlib has no memory");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  std::string run(std::string_view packed, std::uint64_t most) {
    constexpr std::uint64_t kStep = std::uint64_t{1} << 24;
    std::string bytes;
    bool whole = false;
    while (!whole && bytes.size() < most) {
      const std::size_t start = bytes.size();
      bytes.resize(start + std::min(kStep, most - start));
      const std::size_t got = step(packed, bytes.data() + start, bytes.size() - start, whole);
      bytes.resize(start + got);
    }
    return bytes;
  }

 private:
  /// Inflates into `target` and removes the consumed bytes from `packed`. Sets `whole` at the end.
  std::size_t step(std::string_view& packed, char* target, std::size_t room, bool& whole) {
    const auto available =
        static_cast<uInt>(std::min<std::size_t>(packed.size(), std::numeric_limits<uInt>::max()));
    // zlib does not write to its input, although the type is not const.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream_.avail_in = available;
    stream_.next_out = reinterpret_cast<Bytef*>(target);
    stream_.avail_out = static_cast<uInt>(room);
    const int code = inflate(&stream_, Z_NO_FLUSH);
    packed.remove_prefix(available - stream_.avail_in);
    data::require(code != Z_BUF_ERROR || !packed.empty(), where_,
                  "the gzip data end too early: the file is truncated");
    data::require(code == Z_OK || code == Z_STREAM_END, where_, "not readable as gzip: {}",
                  stream_.msg != nullptr ? stream_.msg : zError(code));
    if (code == Z_STREAM_END) {
      whole = packed.empty();
      if (!whole) inflateReset(&stream_);
    }
    return room - stream_.avail_out;
  }

  const std::string& where_;
  z_stream stream_{};
};

/// An IDX file of unsigned bytes.
struct IdxFile {
  std::string where;
  std::vector<std::int64_t> shape;
  std::string items;
};

std::uint32_t big_endian(std::string_view bytes, std::size_t position) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[position + i]);
  }
  return value;
}

/// The product of the dimensions after the header, at most `most`.
std::uint64_t checked_items(const std::vector<std::int64_t>& shape, std::uint64_t most,
                            const std::string& where) {
  std::uint64_t items = 1;
  for (const std::int64_t extent : shape) {
    data::require(extent > 0, where, "the header says [{}], expected sizes of at least 1",
                  fmt::join(shape, ", "));
    const auto factor = static_cast<std::uint64_t>(extent);
    data::require(items <= most / factor, where,
                  "the header says [{}], more bytes than the file can hold (at most {})",
                  fmt::join(shape, ", "), most);
    items *= factor;
  }
  return items;
}

IdxFile read_idx(const fs::path& path, std::size_t dimensions) {
  IdxFile file{.where = path.string(), .shape = {}, .items = {}};
  const std::string& where = file.where;
  const std::string raw = data::read_file(path);
  const bool packed = path.extension() == ".gz";
  const auto content = [&](std::uint64_t most) {
    return packed ? Inflater(where).run(raw, most) : raw.substr(0, most);
  };

  const std::size_t header_bytes = 4 + 4 * dimensions;
  const std::string header = content(header_bytes);
  data::require(header.size() == header_bytes, where,
                "expected a header of {} bytes, got {} bytes: the file is truncated", header_bytes,
                header.size());
  const std::uint32_t magic = kUnsignedBytes << 8 | static_cast<std::uint32_t>(dimensions);
  data::require(
      big_endian(header, 0) == magic, where,
      "expected the magic number {:#010x} (unsigned bytes of {} dimensions), got {:#010x}", magic,
      dimensions, big_endian(header, 0));
  for (std::size_t d = 0; d < dimensions; ++d) {
    file.shape.push_back(big_endian(header, 4 + 4 * d));
  }
  const std::uint64_t most = packed ? raw.size() * data::kDeflateRatio : raw.size();
  const std::uint64_t items = checked_items(file.shape, most, where);
  // One more byte detects a longer file, and makes zlib verify the checksum.
  file.items = content(header_bytes + items + 1).substr(header_bytes);
  data::require(file.items.size() == items, where,
                "the header says [{}], {} bytes; the file has {}", fmt::join(file.shape, ", "),
                items, file.items.size() > items ? "more" : fmt::format("{}", file.items.size()));
  return file;
}

/// The file with this name in one of its spellings.
fs::path find_file(const fs::path& folder, const std::string& stem, const std::string& type) {
  for (const char* packing : {"", ".gz"}) {
    for (const char* joint : {"-", "."}) {
      const fs::path path = folder / (stem + joint + type + packing);
      if (fs::exists(path)) return path;
    }
  }
  detail::raise<IoError>("{}: missing file {}-{} (or {}.{}; plain or .gz)", folder.string(), stem,
                         type, stem, type);
}

at::Tensor as_tensor(IdxFile& file) {
  return at::from_blob(file.items.data(), file.shape, at::TensorOptions(at::kByte));
}

ImageDataset read_part(const fs::path& folder, Split split) {
  data::require(fs::is_directory(folder), folder.string(), "no such folder");
  const std::string part = split == Split::kTrain ? "train" : "t10k";
  const fs::path image_path = find_file(folder, part + "-images", "idx3-ubyte");
  const fs::path label_path = find_file(folder, part + "-labels", "idx1-ubyte");
  IdxFile image_file = read_idx(image_path, 3);
  IdxFile label_file = read_idx(label_path, 1);
  data::require(label_file.shape[0] == image_file.shape[0], label_file.where,
                "expected {} labels, one for each image of {}, got {}", image_file.shape[0],
                image_path.filename().string(), label_file.shape[0]);
  const at::Tensor labels = as_tensor(label_file).to(at::kLong);
  const auto wrong = labels.ge(kClasses).nonzero();
  data::require(wrong.numel() == 0, label_file.where,
                "expected labels in [0, {}), got {} for item {}", kClasses,
                wrong.numel() == 0 ? 0 : labels[wrong[0].item<std::int64_t>()].item<std::int64_t>(),
                wrong.numel() == 0 ? 0 : wrong[0].item<std::int64_t>());
  const at::Tensor pixels = as_tensor(image_file).unsqueeze(1);
  return {pixels.to(at::kFloat).div_(255), labels, kClasses,
          fs::canonical(folder).filename().string()};
}

}  // namespace

ImageDataset load_idx(const std::string& folder, Split split) {
  try {
    return read_part(folder, split);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw IoError(folder + ": does not fit in memory");
  } catch (const c10::Error& error) {
    throw IoError(folder + ": " + data::libtorch_fault("cannot be read", error));
  } catch (const std::exception& error) {
    throw IoError(folder + ": cannot be read: " + error.what());
  }
}

}  // namespace mezzo
