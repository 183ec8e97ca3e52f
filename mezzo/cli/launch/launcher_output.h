#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <sys/types.h>
#include <unistd.h>

#include "mezzo/dist/rendezvous/reserved_port.h"

namespace mezzo::cli {

using dist::detail::Descriptor;

/// Forwards the output of a process line by line.
class Lines {
 public:
  Lines() = default;
  Lines(Descriptor from, int to, std::string prefix)
      : from_(std::move(from)), to_(to), prefix_(std::move(prefix)) {}

  int descriptor() const { return from_.get(); }
  /// Whether some of it could not be written.
  bool is_lost() const { return lost_; }

  /// Forwards the available output without waiting for more.
  void read() {
    std::array<char, 1 << 16> buffer;
    while (from_.is_open()) {
      const ssize_t count = ::read(from_.get(), buffer.data(), buffer.size());
      if (count > 0) {
        take({buffer.data(), static_cast<std::size_t>(count)});
      } else if (count < 0 && errno == EINTR) {
        continue;
      } else if (count < 0 && errno == EAGAIN) {
        return;
      } else {
        finish();
      }
    }
  }

  /// The end; adds the line feed that the last line lacks.
  void finish() {
    from_.close();
    if (!line_.empty()) take("\n");
  }

 private:
  void take(std::string_view text) {
    std::string lines;
    for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n')) {
      lines += prefix_ + line_ + std::string(text.substr(0, end + 1));
      line_.clear();
      text.remove_prefix(end + 1);
    }
    line_ += text;
    write_all(lines);
  }

  void write_all(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::write(to_, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) {
        lost_ = true;  // the reader is gone, or the disk is full
        return;
      }
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  Descriptor from_;
  int to_ = -1;
  std::string prefix_;
  std::string line_;  // that has not ended
  bool lost_ = false;
};

}  // namespace mezzo::cli
