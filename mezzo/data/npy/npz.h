#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/npy/zip_file.h"

namespace mezzo::data {

/// Whether a file may be an npz file, by its name or first bytes. True also for a file that is not
/// regular or cannot be opened, so NpzFile reports the error.
bool may_be_npz(const std::filesystem::path& path);

/// The arrays of an .npz file: a zip archive, stored or deflated, whose members are `<key>.npy`.
/// Members are read on request. Not thread-safe.
class MEZZO_API NpzFile {
 public:
  /// Opens the file and reads its directory. Throws IoError if it is missing, not a zip file,
  /// damaged, or has two members of one name.
  explicit NpzFile(const std::filesystem::path& path);

  /// The keys in alphabetical order, without ".npy".
  std::vector<std::string> keys() const;

  /// Whether there is an array of this name.
  bool contains(const std::string& key) const { return archive_.contains(key + ".npy"); }

  /// Opens array `key`; the NpzFile must outlive the result. Throws IoError if the array is
  /// missing, encrypted, compressed otherwise, or too large to have come from its compressed bytes.
  ZipEntry open(const std::string& key) const;

  /// The numbers of array `key`, on the CPU; see parse_npy. Throws IoError as open() does, and if
  /// the size or checksum differs from the directory. Allocates twice the array.
  at::Tensor numbers(const std::string& key) const;

  /// The text of array `key`; see parse_npy_text. Throws IoError as numbers() does.
  std::vector<std::string> text(const std::string& key) const;

  /// Whether array `key` holds Python objects. Throws IoError as numbers() does.
  bool holds_objects(const std::string& key) const;

  /// The constructor's path, for messages.
  const std::string& path() const { return archive_.path(); }

  /// "<path>: <key>", the start of messages about one array.
  std::string where(const std::string& key) const { return path() + ": " + key; }

 private:
  /// The name of the member; throws IoError if it is missing.
  std::string member_of(const std::string& key) const;
  std::string bytes(const std::string& key) const;

  ZipFile archive_;
};

}  // namespace mezzo::data
