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

}  // namespace

void check_writable(std::string_view what, const std::string& path) {
  std::error_code ignored;
  if (path.empty()) detail::raise<IoError>("{}: the file name is empty", what);
  if (fs::is_directory(path, ignored)) {
    detail::raise<IoError>("{}: {} is a folder, not a file", what, path);
  }
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : ".";
  if (!fs::is_directory(folder, ignored)) {
    detail::raise<IoError>("{}: the folder {} does not exist", what, folder.string());
  }
  const bool special = fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
  const char* written = special ? path.c_str() : folder.c_str();
  if (::access(written, special ? W_OK : W_OK | X_OK) != 0) {
    detail::raise<IoError>("{}: {} cannot be written: {}", what, path, std::strerror(errno));
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
  if (fs::exists(path, failure) && !fs::is_regular_file(path, failure)) {
    write_whole(path, write);
    return;
  }
  const std::string beside = path + ".partial";
  try {
    write_whole(beside, write);
    flush_to_disk(beside);  // else a crash of the machine may leave the new name without its bytes
  } catch (...) {
    fs::remove(beside, failure);
    throw;
  }
  fs::rename(beside, path, failure);
  if (failure) {
    const std::string reason = failure.message();
    fs::remove(beside, failure);
    detail::raise<IoError>("{}: cannot be replaced: {}", path, reason);
  }
}

}  // namespace mezzo
