#include "bench/harness/peer.h"

#include <array>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mezzo/core/error.h"

namespace mezzo::bench {

Peer::Peer(const char* python, std::vector<std::string> words, const void* data,
           std::size_t bytes) {
  std::signal(SIGPIPE, SIG_IGN);  // a process that has ended is an error of ask()
  std::array<int, 2> to_peer = {}, from_peer = {};
  if (::pipe2(to_peer.data(), O_CLOEXEC) != 0 || ::pipe2(from_peer.data(), O_CLOEXEC) != 0) {
    throw IoError("no pipe to a peer");
  }
  words.insert(words.begin(), python);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  process_ = ::fork();
  if (process_ == 0) {
    ::dup2(to_peer[0], STDIN_FILENO);
    ::dup2(from_peer[1], STDOUT_FILENO);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(to_peer[0]);
  ::close(from_peer[1]);
  in_ = ::fdopen(to_peer[1], "w");
  out_ = ::fdopen(from_peer[0], "r");
  std::fwrite(data, 1, bytes, in_);
  std::fflush(in_);
  version_ = line();
}

Peer::~Peer() {
  std::fclose(in_);
  std::fclose(out_);
  ::waitpid(process_, nullptr, 0);
}

std::string Peer::line() {
  std::array<char, 64> answer = {};
  if (std::fgets(answer.data(), answer.size(), out_) == nullptr) return "";
  const std::string text = answer.data();
  return text.substr(0, text.find('\n'));
}

std::string Peer::ask(const std::string& request) {
  std::fputs((request + "\n").c_str(), in_);
  std::fflush(in_);
  std::string answer = line();
  if (answer.empty()) throw IoError("a peer ended");
  return answer;
}

void Peer::read(void* data, std::size_t bytes) {
  if (std::fread(data, 1, bytes, out_) != bytes) throw IoError("a peer ended");
}

}  // namespace mezzo::bench
