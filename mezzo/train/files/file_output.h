#pragma once

#include <functional>
#include <iosfwd>
#include <string>

/// How replace_file writes; internal to train. Each throws IoError that names the path where the
/// file does not take it all; exceptions of `write` pass through.
namespace mezzo {

/// Writes what `write` puts into the stream (opened binary) into the file `path`, and closes it.
void write_whole(const std::string& path, const std::function<void(std::ostream&)>& write);

/// Writes to the open file of this number, behind what it has. path: for errors.
void write_to(int file, const std::string& path, const std::function<void(std::ostream&)>& write);

/// The regular file `path`, made where it is not there, that is this object's alone: two writers of
/// one name take turns, of one process or of several, and what a killed one left is written over.
class LockedFile {
 public:
  /// Waits for the file. Throws IoError where it cannot be made or is no regular file.
  explicit LockedFile(std::string path);
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  ~LockedFile() { close(); }

  /// In place of what the file has; waits until the disk has it, else a crash of the machine may
  /// leave the name without the bytes.
  void write_whole(const std::function<void(std::ostream&)>& write) const;

 private:
  void close();
  bool is_regular() const;
  bool has_its_name() const;
  [[noreturn]] void fail(const char* what, int reason) const;

  std::string path_;
  int file_ = -1;
};

}  // namespace mezzo
