#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "mezzo/core/export.h"

namespace mezzo {

/// Throws IoError that begins with `what` unless replace_file can write to `path`: its folder
/// exists and is writable, `path` is no folder and no link to itself, and `path.partial` does not
/// exist or is a regular file, and its name is not too long; or a pipe, device or open file is
/// writable. Creates nothing; call it before long work.
MEZZO_API void check_writable(std::string_view what, const std::string& path);

/// Makes the folder `path`, and those above it, unless it exists. Throws IoError that begins with
/// `what` if it cannot be made, or is no folder that can be written to.
MEZZO_API void make_folder(std::string_view what, const std::string& path);

/// Throws InvalidArgument that names `what` and `other_what` if `path` and `other` are the same
/// file, also through links. Ignores empty paths and special files (/dev/null). Protects inputs
/// from being overwritten.
MEZZO_API void check_distinct(std::string_view what, const std::string& path,
                              std::string_view other_what, const std::string& other);

/// Throws InvalidArgument that names `what` if `path` is an existing file that the data set
/// `dataset` may be read from: `dataset` itself, or a file in or below that folder (for
/// "folder/ind.name" in `folder`). Ignores open files of this process, checkpoints and reports of
/// the command. Protects the data set from being overwritten.
MEZZO_API void check_not_read(std::string_view what, const std::string& path,
                              const std::string& dataset);

/// How a page of a report begins.
inline constexpr std::string_view kPageMark = "<!DOCTYPE html>\n<!-- mezzo -->\n";

/// Replaces the file `path`: calls `write` with a binary stream to `path.partial`, which is then
/// renamed, so that a reader sees either the old file or the new one. Several writers of one path
/// take turns. If `path` is a link, its target is replaced and the link stays. A pipe, a device and
/// an open file of this process (/dev/stdout, /proc/self/fd/N) are written to directly, the last at
/// its position. Throws IoError that names the path; exceptions of `write` pass through. Then the
/// old file stays.
MEZZO_API void replace_file(const std::string& path,
                            const std::function<void(std::ostream&)>& write);

/// Removes the `path.partial` that replace_file() is writing, if any. Safe in a signal handler.
MEZZO_API void remove_unfinished_file();

}  // namespace mezzo
