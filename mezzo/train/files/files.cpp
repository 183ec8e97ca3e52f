#include "mezzo/train/files/files.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "mezzo/core/error.h"
#include "mezzo/train/files/archive.h"
#include "mezzo/train/files/file_output.h"

namespace mezzo {
namespace {

namespace fs = std::filesystem;

/// Without links, "." and ".."; empty where that cannot be told.
fs::path place_of(const std::string& path) {
  std::error_code failure;
  const fs::path absolute = fs::absolute(path, failure);
  return failure ? fs::path() : fs::weakly_canonical(absolute, failure);
}

/// Whether `place` is `folder` or below it; both as place_of() gives them.
bool lies_in(const fs::path& folder, const fs::path& place) {
  return std::mismatch(folder.begin(), folder.end(), place.begin(), place.end()).first ==
         folder.end();
}

constexpr int kMostLinks = 40;  // of which a path may consist on Linux

/// The file to replace or to make: where links lead, so that they stay; a link still where they
/// lead nowhere.
std::string behind_link(const std::string& path) {
  std::error_code failure;
  fs::path place = path;
  for (int links = 0; links < kMostLinks && fs::is_symlink(place, failure); ++links) {
    place = place.parent_path() / fs::read_symlink(place, failure);  // an absolute one stands alone
    if (failure) return path;
  }
  return place.string();
}

/// The number of this process's open file that `path` names or leads to, as /dev/stdout does.
std::optional<int> open_file_behind(const std::string& path) {
  std::error_code failure;
  const fs::path open_files = fs::canonical("/proc/self/fd", failure);
  if (failure) return std::nullopt;
  fs::path place = fs::absolute(path, failure);
  for (int links = 0; links <= kMostLinks && !failure; ++links) {
    const fs::path folder = fs::canonical(place.parent_path(), failure);
    if (failure) break;
    const std::string name = place.filename().string();
    if (folder == open_files) {
      int file = 0;
      const char* const end = name.data() + name.size();
      const auto [stop, fault] = std::from_chars(name.data(), end, file);
      if (fault != std::errc() || stop != end || file < 0) return std::nullopt;
      return file;
    }
    place = folder / fs::read_symlink(folder / name, failure);
  }
  return std::nullopt;
}

/// Why the open file cannot be written to, as errno says it; 0 where it can.
int problem_of(int file) {
  const int flags = ::fcntl(file, F_GETFL);
  if (flags < 0) return errno;
  return (flags & O_ACCMODE) == O_RDONLY ? EBADF : 0;
}

/// Whether there is something that is written to as it stands, since it cannot be replaced: a pipe
/// or a device.
bool is_special(const std::string& path) {
  std::error_code failure;
  return fs::exists(path, failure) && !fs::is_regular_file(path, failure);
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
  if (const std::optional<int> file = open_file_behind(path)) {
    const int problem = problem_of(*file);
    if (problem == 0) return;
    detail::raise<IoError>("{}: {} cannot be written: {}", what, path, std::strerror(problem));
  }
  const fs::path place = behind_link(path);
  if (fs::is_symlink(place, ignored)) {
    detail::raise<IoError>("{}: {} is a link that leads to itself", what, path);
  }
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
  if (!special && fs::exists(first) && !fs::is_regular_file(first)) {
    detail::raise<IoError>("{}: {}, which is written first, is there and no regular file", what,
                           beside(path));
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

void check_not_read(std::string_view what, const std::string& path, const std::string& dataset) {
  check_distinct(what, path, "the data set", dataset);
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || fs::is_regular_file(dataset, ignored)) return;
  if (open_file_behind(path)) return;  // it is written behind what it has
  if (is_own_output(path)) return;
  const fs::path place = place_of(dataset);
  const bool is_prefix = place.filename().string().starts_with("ind.");
  if (!is_prefix && !fs::exists(place, ignored)) return;
  const fs::path folder = fs::is_directory(place, ignored) ? place : place.parent_path();
  if (folder.empty()) return;
  // By the name as well, for a data set may have a link to a file elsewhere.
  const fs::path named = fs::absolute(path, ignored);
  const fs::path by_name = place_of(named.parent_path().string()) / named.filename();
  bool is_linked = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    is_linked = is_linked || fs::equivalent(entry.path(), path, ignored);
  }
  MEZZO_CHECK(
      !is_linked && !lies_in(folder, place_of(path)) && !lies_in(folder, by_name),
      "{}: {} is in the folder of the data set, which may be read from it; name a new file, "
      "or one elsewhere",
      what, path);
}

void replace_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  if (const std::optional<int> file = open_file_behind(path)) {
    // By its number, so that what was written before stays and what follows comes behind; opened
    // anew by its name it would be written from the start.
    write_to(*file, path, write);
    return;
  }
  if (is_special(path)) {
    write_whole(path, write);
    return;
  }
  std::error_code failure;
  const std::string file = behind_link(path), first = beside(path);
  const LockedFile locked(first);
  try {
    locked.write_whole(write);
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
