#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/mapped/mapped_dataset.h"

/// Writes a mapped dataset; internal. Every disk error is an IoError with the file.
namespace mezzo::data {

/// The header (magic, version, length, dict) of a .npy file in C order. dtype: one that npy_descr
/// supports.
std::string npy_header(at::ScalarType dtype, const std::vector<std::int64_t>& shape);

/// float32 rows [n, F], rounded to `dtype`. first: the number of the first of them. Throws IoError
/// with `where`, the row and the value if one is not finite or beyond the range.
at::Tensor rounded_rows(const at::Tensor& values, at::ScalarType dtype, std::int64_t first,
                        const std::string& where);

/// The same of the stored values of a CSR matrix, which must be finite.
at::Tensor rounded_values(const at::Tensor& features, at::ScalarType dtype,
                          const std::string& where);

/// A file that is being written.
class MEZZO_API OutputFile {
 public:
  /// Creates or truncates it. The destructor closes it and ignores errors; close() reports them.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  void write(const void* bytes, std::size_t size) const;
  /// Reserves disk space from `begin` on, so a full disk is an error here and not a signal
  /// when mapped pages are written.
  void reserve(std::size_t begin, std::size_t size) const;
  /// Waits until the data are on the disk and closes the file.
  void close();

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// A .npy file written from front to back.
class MEZZO_API NpyWriter {
 public:
  /// dtype: one of npy_descr. Writes the header.
  NpyWriter(const std::filesystem::path& folder, const std::string& file, at::ScalarType dtype,
            std::vector<std::int64_t> shape);

  /// Appends items: contiguous, of the dtype, on the CPU.
  void append(const at::Tensor& items);
  /// Closes the file. Returns the array for the manifest. Throws LogicError unless all items were
  /// appended.
  const FolderArray& finish();

 private:
  OutputFile output_;
  FolderArray array_;
  std::int64_t missing_;
};

/// A memory-mapped .npy file whose items are written in any order. It uses page cache, which the
/// system can write out, and no memory of the process.
class MEZZO_API NpyPlaces {
 public:
  /// A vector of `count` items, or a matrix of as many rows of `width` items.
  NpyPlaces(const std::filesystem::path& folder, const std::string& file, at::ScalarType dtype,
            std::int64_t count, std::optional<std::int64_t> width = std::nullopt);
  ~NpyPlaces();
  NpyPlaces(const NpyPlaces&) = delete;
  NpyPlaces& operator=(const NpyPlaces&) = delete;

  /// The items; zeros at first.
  template <class T>
  T* items() const {
    return static_cast<T*>(items_);
  }
  /// Truncates the file after the first `count` items or rows and closes it; items() is then
  /// invalid. Returns the array for the manifest.
  const FolderArray& finish(std::int64_t count);

 private:
  OutputFile output_;
  FolderArray array_;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  void* items_ = nullptr;
};

/// A kind of folder that may be replaced by another of its kind.
struct FolderKind {
  std::string_view name;  ///< "mapped dataset"
  const char* list;       ///< the file in it that lists all others
  /// Those names. Throws IoError if the file is damaged.
  std::vector<std::string> (*names)(const std::filesystem::path& folder);
  const FolderKind* folders = nullptr;  ///< their kind, if they are folders and not files
};

inline constexpr FolderKind kMappedDataset{"mapped dataset", kManifestFile, files_of_manifest};

/// Throws InvalidArgument unless the folder `output` may be written: it does not exist or is empty,
/// or, with `overwrite`, is a folder of that kind that holds only the files of its list and does
/// not contain `source`, the data set that is read. Creates no files.
MEZZO_API void check_output(const std::filesystem::path& output, bool overwrite,
                            const FolderKind& kind, const std::string& source);

/// A folder that other processes see only when complete: it is written as `<output>.partial-<random
/// number>`, which the destructor deletes unless commit() was called.
class MEZZO_API PartialFolder {
 public:
  /// Throws InvalidArgument as check_output, IoError if the folder cannot be created. `kind` must
  /// outlive the object.
  PartialFolder(const std::filesystem::path& output, bool overwrite, const FolderKind& kind,
                std::string source);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  /// The folder to write to.
  const std::filesystem::path& path() const { return partial_; }
  /// Moves the folder to `output` and waits until that is on disk; an old folder is deleted
  /// afterwards. Throws as the constructor if `output` has changed meanwhile.
  void commit();

 private:
  std::filesystem::path output_, partial_;
  bool overwrite_;
  const FolderKind* kind_;
  std::string source_;
  bool committed_ = false;
};

/// Writes mezzo.json into `folder`.
MEZZO_API void write_manifest(const std::filesystem::path& folder, const FolderManifest& manifest);

}  // namespace mezzo::data
