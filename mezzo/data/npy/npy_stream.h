#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::data {

/// The items of one array, a .npy file or a member of an .npz file (stored or deflated), read in
/// order without holding the array in memory. Not thread-safe.
class MEZZO_API NpyStream {
 public:
  /// Opens a .npy file and reads its header. Throws IoError if the file is missing, its header is
  /// damaged, or its size does not match its shape.
  explicit NpyStream(const std::filesystem::path& path);

  /// Opens member `<key>.npy` of an .npz file; its size is as in the zip directory.
  NpyStream(const std::filesystem::path& npz, const std::string& key);
  NpyStream(NpyStream&&) = default;

  /// The sizes of the array, and whether its first dimension varies fastest.
  const std::vector<std::int64_t>& shape() const { return shape_; }
  bool is_fortran() const { return is_fortran_; }

  /// The number of items.
  std::int64_t numel() const { return numel_; }

  /// The start of messages about the array.
  const std::string& where() const { return where_; }

  /// The next `count` items in the order of the file, as a flat tensor with the dtype of
  /// tensor_from_bytes. Throws IoError if the file holds fewer; after the last item it checks that
  /// the data end and, in an .npz file, their checksum.
  at::Tensor next(std::int64_t count);

  /// Skips the next `count` items.
  void skip(std::int64_t count);

 private:
  void read_header();
  void read_exactly(char* target, std::size_t count);
  void pass(std::int64_t count);

  std::string where_;
  std::uint64_t bytes_ = 0;  // of the file or member
  /// Reads up to `count` bytes, 0 at the end.
  std::function<std::size_t(char* target, std::size_t count)> read_;
  std::function<void(std::int64_t count)> seek_;  // skips bytes; if empty, they are read
  std::string descr_;
  std::int64_t item_bytes_ = 0;
  std::vector<std::int64_t> shape_;
  bool is_fortran_ = false;
  std::int64_t numel_ = 0;
  std::int64_t position_ = 0;  // of the next item
};

}  // namespace mezzo::data
