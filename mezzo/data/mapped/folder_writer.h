#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/data/mapped/mapped_dataset.h"

/// What writes a mapped dataset; not for callers of the library. Every fault of the disk is an
/// IoError that names the file.
namespace mezzo::data {

/// Magic, version, length and dict of a .npy file of such items in C order, which follow it. dtype:
/// one that npy_descr knows.
std::string npy_header(at::ScalarType dtype, const std::vector<std::int64_t>& shape);

/// A file that is being written.
class MEZZO_API OutputFile {
 public:
  /// Creates or empties it. It is closed with the object, unheard, unless close() has been called.
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  void write(const void* bytes, std::size_t size) const;
  /// Sets disk space aside from `begin` on, so that a full disk is an error here and not a signal
  /// when the pages are written through memory.
  void reserve(std::size_t begin, std::size_t size) const;
  /// Waits until all is on the disk and closes the file.
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

  /// The next items: contiguous, of the dtype, on the CPU.
  void append(const at::Tensor& items);
  /// Closes the file. Returns the array for the manifest. Throws LogicError unless all items have
  /// come.
  const FolderArray& finish();

 private:
  OutputFile output_;
  FolderArray array_;
  std::int64_t missing_;
};

/// A .npy file whose items are written in any order, through memory that belongs to the file: it
/// costs page cache, which the system writes out when it runs short, and no memory of the process.
class MEZZO_API NpyPlaces {
 public:
  /// A vector of `count` items.
  NpyPlaces(const std::filesystem::path& folder, const std::string& file, at::ScalarType dtype,
            std::int64_t count);
  ~NpyPlaces();
  NpyPlaces(const NpyPlaces&) = delete;
  NpyPlaces& operator=(const NpyPlaces&) = delete;

  /// The items; zeros at first.
  template <class T>
  T* items() const {
    return static_cast<T*>(items_);
  }
  /// Cuts the file off behind the first `count` items and closes it; items() is no more. Returns
  /// the array for the manifest.
  const FolderArray& finish(std::int64_t count);

 private:
  OutputFile output_;
  FolderArray array_;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  void* items_ = nullptr;
};

/// A kind of folder that is written and may be replaced by one of its kind.
struct FolderKind {
  std::string_view name;  ///< "mapped dataset"
  const char* list;       ///< the file in it that names all others
  /// Those names. Throws IoError where the file is damaged.
  std::vector<std::string> (*names)(const std::filesystem::path& folder);
  const FolderKind* folders = nullptr;  ///< what they are where they are no files
};

inline constexpr FolderKind kMappedDataset{"mapped dataset", kManifestFile, files_of_manifest};

/// Throws InvalidArgument unless the folder `output` may be made: nothing is there or an empty
/// folder, or, with `overwrite`, a folder of that kind that holds nothing but what its own list
/// names, and not below it the data set that is read at `source`. Creates nothing.
MEZZO_API void check_output(const std::filesystem::path& output, bool overwrite,
                            const FolderKind& kind, const std::string& source);

/// A folder that appears whole or not at all: it is written beside, as `<output>.partial-` and a
/// random number, a folder of its own, which goes away with the object unless commit() has been
/// called.
class MEZZO_API PartialFolder {
 public:
  /// Throws InvalidArgument as check_output, IoError where the folder cannot be made. kind:
  /// outlives the object.
  PartialFolder(const std::filesystem::path& output, bool overwrite, const FolderKind& kind,
                std::string source);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  /// Where to write.
  const std::filesystem::path& path() const { return partial_; }
  /// Puts the folder in its place and waits until that is on the disk; an old one goes when the new
  /// one is there. Throws as the constructor for what has come to stand there meanwhile.
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
