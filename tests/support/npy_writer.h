#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "support/errors.h"

/// Temporary folders, and small valid and invalid .npy and .npz files for the tests of readers. A
/// test that includes this file does not repeat its includes of other libraries.
namespace mezzo::test {

/// A temporary folder, removed by the destructor.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mezzo_test_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  /// Writes a file and returns its path. Creates parent folders.
  std::string write(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
    return file.string();
  }

  void remove(const std::string& name) const { std::filesystem::remove_all(path_ / name); }
  std::string path() const { return path_.string(); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

template <class T>
std::string raw_bytes(const std::vector<T>& items) {
  std::string bytes(items.size() * sizeof(T), '\0');
  if (!items.empty()) std::memcpy(bytes.data(), items.data(), bytes.size());
  return bytes;
}

/// "(3, 4)", "(3,)" or "()"
inline std::string shape_literal(const std::vector<std::int64_t>& shape) {
  if (shape.size() == 1) return fmt::format("({},)", shape[0]);
  return fmt::format("({})", fmt::join(shape, ", "));
}

/// A version 1 file with exactly this dict literal.
inline std::string npy_with_header(std::string header, std::string_view items) {
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes.append(header).append(items);
}

inline std::string npy(const std::string& descr, const std::vector<std::int64_t>& shape,
                       std::string_view items, const std::string& fortran_order = "False") {
  return npy_with_header("{'descr': '" + descr + "', 'fortran_order': " + fortran_order +
                             ", 'shape': " + shape_literal(shape) + ", }",
                         items);
}

inline std::string npy_int64(const std::vector<std::int64_t>& shape,
                             const std::vector<std::int64_t>& items) {
  return npy("<i8", shape, raw_bytes(items));
}

inline std::string npy_int32(const std::vector<std::int64_t>& shape,
                             const std::vector<std::int32_t>& items) {
  return npy("<i4", shape, raw_bytes(items));
}

inline std::string npy_float32(const std::vector<std::int64_t>& shape,
                               const std::vector<float>& items) {
  return npy("<f4", shape, raw_bytes(items));
}

/// items: '0' and '1'.
inline std::string npy_bool(const std::vector<std::int64_t>& shape, std::string items) {
  for (char& item : items) item = static_cast<char>(item - '0');
  return npy("|b1", shape, items);
}

/// A member of a zip archive; its fields may be inconsistent.
struct ZipMember {
  std::string name;
  std::string contents;                    ///< the uncompressed contents
  std::uint16_t method = 0;                ///< 0 stored, 8 deflated
  std::optional<std::string> packed = {};  ///< the deflated stream; default: unpacked blocks
  std::optional<std::uint32_t> size_claim = {};
  std::optional<std::uint32_t> packed_claim = {};
  std::optional<std::uint32_t> crc_claim = {};
  std::uint16_t flags = 0;
};

inline std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320 : 0);
  }
  return ~crc;
}

inline void append_number(std::string& bytes, std::uint64_t value, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xFF);
}

/// `contents` as a deflate stream of blocks that are not compressed.
inline std::string deflate_blocks(std::string_view contents) {
  std::string stream;
  do {
    const std::string_view block = contents.substr(0, 0xFFFF);
    contents.remove_prefix(block.size());
    stream += contents.empty() ? '\1' : '\0';
    append_number(stream, block.size(), 2);
    append_number(stream, ~block.size() & 0xFFFF, 2);
    stream += block;
  } while (!contents.empty());
  return stream;
}

/// A zip archive of these members.
inline std::string zip_bytes(const std::vector<ZipMember>& members) {
  std::string bytes;
  std::string directory;
  for (const ZipMember& member : members) {
    const std::string packed = member.packed.value_or(
        member.method == 8 ? deflate_blocks(member.contents) : member.contents);
    std::string fields;  // shared by both headers
    append_number(fields, 20, 2);
    append_number(fields, member.flags, 2);
    append_number(fields, member.method, 2);
    append_number(fields, 0x00210000, 4);  // 1980-01-01
    append_number(fields, member.crc_claim.value_or(crc32(member.contents)), 4);
    append_number(fields, member.packed_claim.value_or(std::uint32_t(packed.size())), 4);
    append_number(fields, member.size_claim.value_or(std::uint32_t(member.contents.size())), 4);
    append_number(fields, member.name.size(), 2);
    append_number(fields, 0, 2);
    directory.append("PK\1\2\x14\0", 6).append(fields);
    append_number(directory, 0, 10);
    append_number(directory, bytes.size(), 4);
    directory += member.name;
    bytes.append("PK\3\4", 4).append(fields).append(member.name).append(packed);
  }
  const std::size_t directory_at = bytes.size();
  bytes += directory;
  bytes.append("PK\5\6\0\0\0\0", 8);
  append_number(bytes, members.size(), 2);
  append_number(bytes, members.size(), 2);
  append_number(bytes, directory.size(), 4);
  append_number(bytes, directory_at, 4);
  append_number(bytes, 0, 2);
  return bytes;
}

/// Arrays by key, stored.
inline std::string npz_bytes(const std::vector<std::pair<std::string, std::string>>& arrays) {
  std::vector<ZipMember> members;
  for (const auto& [key, contents] : arrays) members.push_back({key + ".npy", contents});
  return zip_bytes(members);
}

}  // namespace mezzo::test
