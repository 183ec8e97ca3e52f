#include "mezzo/train/files.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "mezzo/core/error.h"

namespace mezzo {
namespace {

namespace fs = std::filesystem;

/// Writes and closes `path`; IoError where the disk does not take it all.
void write_whole(const std::string& path, const std::function<void(std::ostream&)>& write) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) detail::raise<IoError>("{}: cannot be written: {}", path, std::strerror(errno));
  write(file);
  file.close();
  if (!file) detail::raise<IoError>("{}: writing failed: {}", path, std::strerror(errno));
}

/// Waits until the disk has the file; IoError where it does not take it.
void flush_to_disk(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool flushed = file >= 0 && ::fsync(file) == 0;
  const int reason = errno;
  if (file >= 0) ::close(file);
  if (!flushed) detail::raise<IoError>("{}: writing failed: {}", path, std::strerror(reason));
}

/// Without links, "." and ".."; empty where that cannot be told.
fs::path place_of(const std::string& path) {
  std::error_code failure;
  const fs::path absolute = fs::absolute(path, failure);
  return failure ? fs::path() : fs::weakly_canonical(absolute, failure);
}

/// The file to replace: where a link leads to one, so that the link stays.
std::string behind_link(const std::string& path) {
  std::error_code failure;
  if (!fs::is_symlink(path, failure)) return path;
  const fs::path file = fs::canonical(path, failure);
  return failure ? path : file.string();
}

/// Whether there is something that is written to as it stands, since it cannot be replaced: a pipe,
/// a device, or what /dev/stdout leads to where that file has lost its name.
bool is_special(const std::string& path) {
  std::error_code failure;
  if (!fs::exists(path, failure)) return false;
  return !fs::is_regular_file(path, failure) || fs::is_symlink(behind_link(path), failure);
}

/// What replace_file writes first.
std::string beside(const std::string& path) {
  return behind_link(path) + ".partial";
}

}  // namespace

void check_writable(std::string_view what, const std::string& path) {
  std::error_code ignored, failure;
  if (path.empty()) detail::raise<IoError>("{}: the file name is empty", what);
  if (fs::is_directory(path, ignored)) {
    detail::raise<IoError>("{}: {} is a folder, not a file", what, path);
  }
  const fs::path place = behind_link(path);
  const fs::path folder = place.has_parent_path() ? place.parent_path() : ".";
  if (!fs::is_directory(folder, ignored)) {
    detail::raise<IoError>("{}: the folder {} does not exist", what, folder.string());
  }
  const bool special = is_special(path);
  const char* written = special ? path.c_str() : folder.c_str();
  if (::access(written, special ? W_OK : W_OK | X_OK) != 0) {
    detail::raise<IoError>("{}: {} cannot be written: {}", what, path, std::strerror(errno));
  }
  const fs::file_status first = fs::symlink_status(beside(path), failure);
  if (!special && failure == std::errc::filename_too_long) {
    detail::raise<IoError>("{}: {} cannot be written: {}", what, path, failure.message());
  }
  if (!special && fs::is_directory(first)) {
    detail::raise<IoError>("{}: {}, which is written first, is a folder", what, beside(path));
  }
}

void check_distinct(std::string_view what, const std::string& path, std::string_view other_what,
                    const std::string& other) {
  if (path.empty() || other.empty()) return;
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return;
  const fs::path place = place_of(path);
  const bool same =
      (!place.empty() && place == place_of(other)) || fs::equivalent(path, other, ignored);
  MEZZO_CHECK(!same, "{}: {} is the file of {} too", what, path, other_what);
}

void replace_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  std::error_code failure;
  if (is_special(path)) {
    write_whole(path, write);
    return;
  }
  const std::string file = behind_link(path), first = beside(path);
  try {
    write_whole(first, write);
    flush_to_disk(first);  // else a crash of the machine may leave the new name without its bytes
  } catch (...) {
    fs::remove(first, failure);
    throw;
  }
  fs::rename(first, file, failure);
  if (failure) {
    const std::string reason = failure.message();
    fs::remove(first, failure);
    detail::raise<IoError>("{}: cannot be replaced: {}", path, reason);
  }
}

}  // namespace mezzo
