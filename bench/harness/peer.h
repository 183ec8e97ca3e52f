#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include <sys/types.h>

namespace mezzo::bench {

/// A program of bench/peers in a process of its own, which answers each line with a line.
class Peer {
 public:
  /// Starts MEZZO_PYTHON with these words, the script first, writes `bytes` of `data` to its
  /// standard input and reads its first line. Throws IoError without pipes.
  Peer(const char* python, std::vector<std::string> words, const void* data = nullptr,
       std::size_t bytes = 0);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// The line that answers `line`; throws IoError if the process has ended.
  std::string ask(const std::string& line);
  /// Reads `bytes` that follow an answer. Throws IoError if there are fewer.
  void read(void* data, std::size_t bytes);

  /// The first line, of what runs; empty if it cannot run.
  const std::string& version() const { return version_; }

 private:
  std::string line();

  pid_t process_ = -1;
  std::FILE *in_ = nullptr, *out_ = nullptr;
  std::string version_;
};

}  // namespace mezzo::bench
