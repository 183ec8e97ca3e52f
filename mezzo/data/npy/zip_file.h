#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mezzo/core/export.h"

struct zip;       // libzip's open file
struct zip_file;  // and an open member of one

namespace mezzo::data {

/// An open member of a ZipFile.
struct MEZZO_API ZipEntry {
  struct Closer {
    void operator()(::zip_file* file) const;
  };

  std::string where;
  std::unique_ptr<::zip_file, Closer> file;
  std::uint64_t size = 0;  ///< as in the zip directory

  /// Reads up to `count` bytes; 0 at the end, if the checksum is right.
  std::size_t read(char* target, std::uint64_t count) const;
};

/// A zip archive whose members are stored or deflated and read on request. Every error is an
/// IoError that begins with the path, or with the `where` of a member. Not thread-safe.
class MEZZO_API ZipFile {
 public:
  /// Opens the file and reads its directory. Throws if it is missing, damaged, no zip file, or has
  /// two members of one name. kind: "npz", for errors.
  ZipFile(const std::filesystem::path& path, const char* kind);

  const std::string& path() const { return path_; }
  /// The members in alphabetical order.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return members_.count(name) > 0; }

  /// Opens a member that exists; the ZipFile must outlive the result. Throws if it is encrypted,
  /// compressed otherwise, or too large to have come from its compressed bytes.
  ZipEntry open(const std::string& name, const std::string& where) const;

  /// The contents of a member that exists. Throws as open() does, and if the size or checksum
  /// differs from the directory.
  std::string bytes(const std::string& name, const std::string& where) const;

 private:
  struct Closer {
    void operator()(::zip* archive) const;
  };

  std::string path_;
  std::uint64_t file_bytes_ = 0;
  std::unique_ptr<::zip, Closer> archive_;
  std::map<std::string, std::uint64_t> members_;  // name -> index
};

}  // namespace mezzo::data
