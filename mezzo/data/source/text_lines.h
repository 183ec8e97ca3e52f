#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mezzo/core/error.h"
#include "mezzo/core/export.h"

struct gzFile_s;  // zlib's open file

namespace mezzo::data {

/// The lines of a text file, plain or gzip (recognised by its first bytes, not its name), read
/// through a buffer that grows to the longest line. Lines end with "\n" or "\r\n"; a byte order
/// mark before the first is skipped. Not thread-safe.
class MEZZO_API TextLines {
 public:
  /// Longer lines are an error.
  static constexpr std::size_t kMaxLineBytes = std::size_t{1} << 24;
  /// The lines between two calls of on_lines.
  static constexpr std::int64_t kLinesPerCall = std::int64_t{1} << 20;

  /// Opens the file. Throws IoError if it does not exist, is not a regular file, or ends in `.gz`
  /// and is no gzip file. on_lines: as LoadOptions::on_lines.
  explicit TextLines(const std::filesystem::path& path, std::function<void()> on_lines = {});

  /// Sets `line` to the next line, without its end; valid until the next call. False at the end of
  /// the file. Throws IoError for a line that is too long and for gzip data that are truncated or
  /// damaged.
  bool next(std::string_view& line);

  /// The number of the line that next() returned last, from 1.
  std::int64_t number() const { return number_; }

  /// "<path>:<line>", the start of messages about the last line.
  std::string where() const;

  /// Throws IoError "<path>:<line>: <text>" unless `condition` holds.
  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) [[unlikely]] {
      throw IoError(where() + ": " + fmt::format(text, std::forward<Args>(args)...));
    }
  }

  /// A field of the last line as a number. Throws IoError if it is not a number, has further
  /// characters or is out of range. A real number may be "nan" or "inf".
  std::int64_t integer(std::string_view field) const;
  double real(std::string_view field) const;

 private:
  struct Closer {
    void operator()(::gzFile_s* file) const;
  };

  bool refill();

  std::string path_;
  std::function<void()> on_lines_;
  std::unique_ptr<::gzFile_s, Closer> file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // not returned yet: buffer_[begin_, end_)
  std::size_t end_ = 0;
  bool at_end_ = false;  // the whole file is read
  std::int64_t number_ = 0;
};

/// The separator of the fields of a line.
enum class Separator : char {
  // One of these; blanks around a field do not belong to it.
  kComma = ',',
  kSemicolon = ';',
  kTab = '\t',
  kBlanks = ' ',  ///< any number of blanks and tabs; blanks at the ends are ignored
};

/// Sets `fields` to the fields of `line`. A line without a separator has one field. A blank line
/// has no fields with kBlanks, else one empty field.
MEZZO_API void split_fields(std::string_view line, Separator separator,
                            std::vector<std::string_view>& fields);

}  // namespace mezzo::data
