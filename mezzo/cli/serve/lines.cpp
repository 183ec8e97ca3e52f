#include "mezzo/cli/serve/lines.h"

#include <array>
#include <cerrno>
#include <utility>

#include <unistd.h>

namespace mezzo::cli {

LineReader::LineReader(int file, std::size_t max_bytes, std::function<bool()> wait)
    : file_(file), max_bytes_(max_bytes), wait_(std::move(wait)) {}

bool LineReader::fill() {
  if (ended_) return false;
  std::array<char, 1 << 16> bytes;
  ssize_t count = -1;
  do {
    if (!wait_()) break;
    count = ::read(file_, bytes.data(), bytes.size());
  } while (count < 0 && errno == EINTR);
  if (count <= 0) {
    ended_ = true;
    return false;
  }
  buffer_.append(bytes.data(), static_cast<std::size_t>(count));
  return true;
}

LineReader::Result LineReader::next(std::string& line) {
  while (true) {
    std::size_t end = buffer_.find('\n', searched_);
    if (end == std::string::npos) {
      searched_ = buffer_.size();
      if (skips_) {
        buffer_.clear();
        searched_ = 0;
      } else if (buffer_.size() > max_bytes_) {
        skips_ = true;
        return Result::kTooLong;
      }
      if (fill()) continue;
      if (buffer_.empty()) return Result::kEnd;
      end = buffer_.size();
    }
    line.assign(buffer_, 0, end);
    buffer_.erase(0, end + 1);
    searched_ = 0;
    if (std::exchange(skips_, false)) continue;
    if (line.size() > max_bytes_) return Result::kTooLong;
    if (line.find_first_not_of(" \t\r") != std::string::npos) return Result::kLine;
  }
}

bool write_line(int file, std::string_view text) {
  std::string line(text);
  line += '\n';
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t count = ::write(file, line.data() + done, line.size() - done);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace mezzo::cli
