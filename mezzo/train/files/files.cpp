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
#include "mezzo/train/files/checkpoint_io.h"
#include "mezzo/train/files/file_output.h"

namespace mezzo {
namespace {

namespace fs = std::filesystem;

/// Absolute, without links, "." and ".."; empty if that fails.
fs::path canonical_path(const std::string& path) {
  std::error_code failure;
  const fs::path absolute = fs::absolute(path, failure);
  return failure ? fs::path() : fs::weakly_canonical(absolute, failure);
}

/// Whether `place` is `folder` or below it; both from canonical_path().
bool lies_in(const fs::path& folder, const fs::path& place) {
  return std::mismatch(folder.begin(), folder.end(), place.begin(), place.end()).first ==
         folder.end();
}

constexpr int kMostLinks = 40;  // in a path, as on Linux

/// The target of the links, which is the file to write; still a link if they form a circle.
std::string link_target(const std::string& path) {
  std::error_code failure;
  fs::path place = path;
  for (int links = 0; links < kMostLinks && fs::is_symlink(place, failure); ++links) {
    place = place.parent_path() /
            fs::read_symlink(place, failure);  // an absolute path replaces the left side
    if (failure) return path;
  }
  return place.string();
}

/// The file descriptor of this process that `path` names or links to, as /dev/stdout does.
std::optional<int> open_descriptor(const std::string& path) {
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
      const auto [stop, error] = std::from_chars(name.data(), end, file);
      if (error != std::errc() || stop != end || file < 0) return std::nullopt;
      return file;
    }
    place = folder / fs::read_symlink(folder / name, failure);
  }
  return std::nullopt;
}

/// The errno that writing to the open file would set, or 0.
int problem_of(int file) {
  const int flags = ::fcntl(file, F_GETFL);
  if (flags < 0) return errno;
  return (flags & O_ACCMODE) == O_RDONLY ? EBADF : 0;
}

/// Whether `path` is a pipe or a device, which is written to and not replaced.
bool is_special(const std::string& path) {
  std::error_code failure;
  return fs::exists(path, failure) && !fs::is_regular_file(path, failure);
}

/// The file that replace_file writes and renames.
std::string partial_path(const std::string& path) {
  return link_target(path) + ".partial";
}

}  // namespace

void check_writable(std::string_view what, const std::string& path) {
  std::error_code ignored, failure;
  if (path.empty()) detail::raise<IoError>("{}: the file name is empty", what);
  if (fs::is_directory(path, ignored)) {
    detail::raise<IoError>("{}: {} is a folder, not a file", what, path);
  }
  if (const std::optional<int> file = open_descriptor(path)) {
    const int problem = problem_of(*file);
    if (problem == 0) return;
    detail::raise<IoError>("{}: {} cannot be written: {}", what, path, std::strerror(problem));
  }
  const fs::path place = link_target(path);
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
  const fs::file_status first = fs::symlink_status(partial_path(path), failure);
  if (!special && failure == std::errc::filename_too_long) {
    detail::raise<IoError>("{}: {} cannot be written: {}", what, path, failure.message());
  }
  if (!special && fs::exists(first) && !fs::is_regular_file(first)) {
    detail::raise<IoError>("{}: {}, which is written first, exists and is no regular file", what,
                           partial_path(path));
  }
}

void make_folder(std::string_view what, const std::string& path) {
  using detail::raise;
  std::error_code ignored, failure;
  if (path.empty()) raise<IoError>("{}: the folder name is empty", what);
  if (fs::exists(path, ignored) && !fs::is_directory(path, ignored)) {
    raise<IoError>("{}: {} is no folder", what, path);
  }
  fs::create_directories(path, failure);
  if (failure) raise<IoError>("{}: {} cannot be made: {}", what, path, failure.message());
  if (::access(path.c_str(), W_OK | X_OK) != 0) {
    raise<IoError>("{}: {} cannot be written: {}", what, path, std::strerror(errno));
  }
}

void check_distinct(std::string_view what, const std::string& path, std::string_view other_what,
                    const std::string& other) {
  if (path.empty() || other.empty()) return;
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return;
  const fs::path place = canonical_path(path);
  const bool same =
      (!place.empty() && place == canonical_path(other)) || fs::equivalent(path, other, ignored);
  MEZZO_CHECK(!same, "{}: {} is the file of {} too", what, path, other_what);
}

void check_not_read(std::string_view what, const std::string& path, const std::string& dataset) {
  check_distinct(what, path, "the data set", dataset);
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored) || fs::is_regular_file(dataset, ignored)) return;
  if (open_descriptor(path)) return;  // written at its position
  if (is_own_output(path)) return;
  const fs::path place = canonical_path(dataset);
  const bool is_prefix = place.filename().string().starts_with("ind.");
  if (!is_prefix && !fs::exists(place, ignored)) return;
  const fs::path folder = fs::is_directory(place, ignored) ? place : place.parent_path();
  if (folder.empty()) return;
  // Compare by name too: a data set may contain a link to a file elsewhere.
  const fs::path named = fs::absolute(path, ignored);
  const fs::path by_name = canonical_path(named.parent_path().string()) / named.filename();
  bool is_linked = false;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    is_linked = is_linked || fs::equivalent(entry.path(), path, ignored);
  }
  MEZZO_CHECK(
      !is_linked && !lies_in(folder, canonical_path(path)) && !lies_in(folder, by_name),
      "{}: {} is in the folder of the data set, which may be read from it; name a new file, "
      "or one elsewhere",
      what, path);
}

void replace_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  if (const std::optional<int> file = open_descriptor(path)) {
    // By its descriptor, which has a position; opening the path again would write from the start.
    write_to(*file, path, write);
    return;
  }
  if (is_special(path)) {
    write_whole(path, write);
    return;
  }
  std::error_code failure;
  const std::string file = link_target(path), first = partial_path(path);
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
