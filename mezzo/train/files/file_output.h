#pragma once

#include <functional>
#include <iosfwd>
#include <string>

/// Output of replace_file; internal to train. Each throws IoError that names the path if writing
/// fails; exceptions of `write` pass through.
namespace mezzo {

/// Opens the file `path` (binary), calls `write` with the stream, and closes it.
void write_whole(const std::string& path, const std::function<void(std::ostream&)>& write);

/// Writes to an open file descriptor at its position. path: for errors.
void write_to(int file, const std::string& path, const std::function<void(std::ostream&)>& write);

/// The regular file `path`, created if needed and locked: several writers of one path, also of
/// different processes, take turns. The rest of a killed writer is overwritten.
class LockedFile {
 public:
  /// Waits for the lock. Throws IoError if the file cannot be created or is no regular file.
  explicit LockedFile(std::string path);
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  ~LockedFile() { close(); }

  /// Replaces the content and waits for fsync, so that a crash of the machine does not leave a file
  /// without content.
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
