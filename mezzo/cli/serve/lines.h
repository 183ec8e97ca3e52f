#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace mezzo::cli {

/// Lines from a file descriptor. Memory: at most max_bytes and one buffer of 64 KiB.
class LineReader {
 public:
  enum class Result : std::uint8_t {
    kLine,
    kTooLong,  ///< the line has more than max_bytes; the rest of it is skipped
    kEnd,      ///< the end of the file, an error, or wait() returned false
  };

  /// file: stays open. wait: called before each read; returns false to end.
  LineReader(int file, std::size_t max_bytes, std::function<bool()> wait);

  /// Sets `line` to the next one that is not empty, without the line break; the last one of the
  /// file needs none.
  Result next(std::string& line);

 private:
  /// Reads more; returns false at the end.
  bool fill();

  int file_;
  std::size_t max_bytes_;
  std::function<bool()> wait_;
  std::string buffer_;
  std::size_t searched_ = 0;  // bytes of the buffer without a line break
  bool skips_ = false;        // up to the next line break
  bool ended_ = false;
};

/// Writes the text and a line break; returns false if that fails.
bool write_line(int file, std::string_view text);

}  // namespace mezzo::cli
