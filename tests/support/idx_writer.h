#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

#include "mezzo/core/random.h"

#include "support/npy_writer.h"

/// Writes IDX files, right and wrong ones.
namespace mezzo::test {

inline std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

/// An IDX file of this magic number, these sizes and these items, whatever they are.
inline std::string idx(std::uint32_t magic, const std::vector<std::uint32_t>& sizes,
                       std::string_view items) {
  std::string bytes = big_endian(magic);
  for (const std::uint32_t size : sizes) bytes += big_endian(size);
  return bytes.append(items);
}

inline constexpr std::uint32_t kImageMagic = 0x803, kLabelMagic = 0x801;

/// A gzip file of one member.
inline std::string gzip(std::string_view bytes) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(bytes.size() + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// Pixels of `count` squares of `extent` x `extent`: noise up to 60, and for class 1 (every second
/// image) 180 more in the upper half, for class 0 in the lower.
inline std::string square_pixels(std::uint32_t count, std::uint32_t extent, std::uint64_t seed) {
  std::string pixels;
  for (std::uint32_t i = 0; i < count * extent * extent; ++i) {
    const std::uint32_t image = i / (extent * extent), row = i / extent % extent;
    const bool bright = (image % 2 == 1) == (row < extent / 2);
    pixels += static_cast<char>(random_below(60, seed, 1, i) + (bright ? 180 : 0));
  }
  return pixels;
}

/// Their labels.
inline std::string square_labels(std::uint32_t count) {
  std::string labels;
  for (std::uint32_t i = 0; i < count; ++i) labels += static_cast<char>(i % 2);
  return labels;
}

/// A folder of squares, training images and test images; its path.
inline std::string write_squares(const TempFolder& folder, std::uint32_t train, std::uint32_t test,
                                 std::uint32_t extent = 12) {
  for (const bool training : {true, false}) {
    const std::uint32_t count = training ? train : test;
    const std::string part = training ? "squares/train" : "squares/t10k";
    folder.write(part + "-images-idx3-ubyte.gz",
                 gzip(idx(kImageMagic, {count, extent, extent},
                          square_pixels(count, extent, training ? 1 : 2))));
    folder.write(part + "-labels-idx1-ubyte", idx(kLabelMagic, {count}, square_labels(count)));
  }
  return folder.path("squares");
}

}  // namespace mezzo::test
