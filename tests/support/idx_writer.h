#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <zlib.h>

/// Writes valid and invalid IDX files.
namespace mezzo::test {

inline std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xFF);
  return bytes;
}

/// An IDX file with this magic number, these sizes and items, without checks.
inline std::string idx(std::uint32_t magic, const std::vector<std::uint32_t>& sizes,
                       std::string_view items) {
  std::string bytes = big_endian(magic);
  for (const std::uint32_t size : sizes) bytes += big_endian(size);
  return bytes.append(items);
}

inline constexpr std::uint32_t kImageMagic = 0x803, kLabelMagic = 0x801;

/// A gzip file with one member.
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

}  // namespace mezzo::test
