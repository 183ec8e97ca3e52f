#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "mezzo/core/export.h"

namespace mezzo {

/// Throws IoError that begins with `what` unless a file can be made or replaced at `path`: its
/// folder exists and may be written to, `path` is no folder itself and no link to itself, and
/// `path.partial` is not there or a regular file, and no name that is too long; or unless what
/// replace_file does not replace can be written to. Creates nothing; for a check before long work.
MEZZO_API void check_writable(std::string_view what, const std::string& path);

/// Throws InvalidArgument that names `what` and `other_what` where `path` and `other` are one file,
/// by whatever names. An empty path is no file, and what is there and no regular file (/dev/null)
/// may be named twice. For what would overwrite an input.
MEZZO_API void check_distinct(std::string_view what, const std::string& path,
                              std::string_view other_what, const std::string& other);

/// Throws InvalidArgument that names `what` where a file is at `path` that the data set `dataset`
/// may be read from: `dataset` itself, or one in that folder or below; of "folder/ind.name" in
/// `folder`. An empty path is no file, what is no file yet is none of them, nor is, in that folder,
/// an open file of this process, a checkpoint or a JSON report of the command; a `dataset` that is
/// not there has none. For what is written after a data set is read.
MEZZO_API void check_not_read(std::string_view what, const std::string& path,
                              const std::string& dataset);

/// Replaces the file `path` by what `write` puts into the stream (opened binary). It is written
/// beside, as `path.partial`, and renamed, so that a reader sees the old file or the new one and
/// never half of it; of several writers of one path each writes all of it, one after the other.
/// Where `path` is a link to a file, there or not, that file is replaced and the link stays.
/// What cannot be replaced is written to directly: something at `path` that is no regular file (a
/// pipe, a device), and an open file of this process (/dev/stdout, /proc/self/fd/N), behind what it
/// has. Throws IoError that names the path; exceptions of `write` pass through. Either way the old
/// file stays.
MEZZO_API void replace_file(const std::string& path,
                            const std::function<void(std::ostream&)>& write);

/// Removes the file beside its place that replace_file() is writing, if there is one. Safe in a
/// signal handler.
MEZZO_API void remove_unfinished_file();

}  // namespace mezzo
