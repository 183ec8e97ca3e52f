#include "mezzo/cli/serve/server.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <list>
#include <new>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "mezzo/cli/serve/lines.h"
#include "mezzo/core/error.h"

namespace mezzo::cli {
namespace {

constexpr int kPollMilliseconds = 200;  // a signal may go to any thread and end no poll
constexpr std::size_t kMaxConnections = 64;
constexpr timeval kSendTimeout = {.tv_sec = 10, .tv_usec = 0};

/// Waits up to kPollMilliseconds until the file can be read; -1: no file.
bool is_readable(int file) {
  pollfd wait{.fd = file, .events = POLLIN, .revents = 0};
  return ::poll(&wait, 1, kPollMilliseconds) > 0;
}

/// Answers the lines of a reader; returns false if writing fails.
bool answer_lines(RequestHandler& handler, LineReader& reader, int out, const ServeOptions& options,
                  RateLimit& limit) {
  std::string line;
  while (true) {
    const LineReader::Result result = reader.next(line);
    if (result == LineReader::Result::kEnd) return true;
    std::string answer;
    if (!limit.take(options.now())) {
      answer = error_line(
          fmt::format("expected at most {} requests a second", options.max_requests_per_second));
    } else if (result == LineReader::Result::kTooLong) {
      answer =
          error_line(fmt::format("expected a line of at most {} bytes", options.max_request_bytes));
    } else {
      answer = handler.answer(line);
    }
    if (!write_line(out, answer)) return false;
  }
}

/// A Unix socket that listens; its file is removed at the end.
class Listener {
 public:
  explicit Listener(const std::string& path) : path_(path) {
    MEZZO_CHECK(path.size() < sizeof(address_.sun_path),
                "--socket: expected a path of at most {} bytes, got {}",
                sizeof(address_.sun_path) - 1, path.size());
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path, path.c_str(), path.size() + 1);
    remove_unserved();
    file_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const mode_t mask = ::umask(S_IRWXG | S_IRWXO);
    is_bound_ = file_ >= 0 && ::bind(file_, address(), sizeof(address_)) == 0;
    const int error = errno;
    ::umask(mask);
    if (!is_bound_ || ::listen(file_, SOMAXCONN) != 0) {
      const int code = is_bound_ ? errno : error;
      close();
      detail::raise<IoError>("--socket: {} cannot be made: {}", path, std::strerror(code));
    }
  }
  ~Listener() { close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int file() const { return file_; }

 private:
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }

  /// Removes the file of a server that was killed; throws if the path is anything else.
  void remove_unserved() const {
    struct stat status = {};
    if (::lstat(path_.c_str(), &status) != 0) return;
    bool is_unserved = false;
    if (S_ISSOCK(status.st_mode)) {
      const int client = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      is_unserved = ::connect(client, address(), sizeof(address_)) != 0 && errno == ECONNREFUSED;
      ::close(client);
    }
    MEZZO_CHECK(is_unserved, "--socket: expected a new path, got {}, which exists", path_);
    ::unlink(path_.c_str());
  }
  void close() {
    if (is_bound_) ::unlink(path_.c_str());
    if (file_ >= 0) ::close(file_);
  }

  std::string path_;
  sockaddr_un address_ = {};
  int file_ = -1;
  bool is_bound_ = false;
};

/// A client and its thread. The destructor waits until it has answered what it has read.
class Connection {
 public:
  Connection(int file, RequestHandler& handler, const ServeOptions& options, RateLimit& limit)
      : file_(file), thread_([this, &handler, &options, &limit] {
          LineReader reader(file_, static_cast<std::size_t>(options.max_request_bytes),
                            [] { return true; });
          try {
            answer_lines(handler, reader, file_, options, limit);
          } catch (const std::bad_alloc&) {  // the client is closed, the others go on
          }
          ::shutdown(file_, SHUT_RDWR);
          ended_ = true;
        }) {}
  ~Connection() {
    stop_reading();
    thread_.join();
    ::close(file_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool ended() const { return ended_; }
  void stop_reading() { ::shutdown(file_, SHUT_RD); }

 private:
  int file_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;  // uses the other members
};

}  // namespace

void serve_lines(RequestHandler& handler, int in, int out, const ServeOptions& options) {
  RateLimit limit(options.max_requests_per_second);
  LineReader reader(in, static_cast<std::size_t>(options.max_request_bytes), [&] {
    while (!options.should_stop()) {
      if (is_readable(in)) return true;
    }
    return false;
  });
  if (!answer_lines(handler, reader, out, options, limit)) {
    throw IoError("the standard output: writing failed");
  }
}

void serve_socket(RequestHandler& handler, const std::string& path, const ServeOptions& options) {
  RateLimit limit(options.max_requests_per_second);
  std::list<Connection> connections;
  const Listener listener(path);
  while (!options.should_stop()) {
    connections.remove_if([](const Connection& connection) { return connection.ended(); });
    const bool is_full = connections.size() >= kMaxConnections;
    if (!is_readable(is_full ? -1 : listener.file())) continue;
    const int client = ::accept4(listener.file(), nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {  // no more descriptors, say, and then the listener stays readable
      is_readable(-1);
      continue;
    }
    ::setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &kSendTimeout, sizeof(kSendTimeout));
    try {
      connections.emplace_back(client, handler, options, limit);
    } catch (const std::system_error&) {  // no more threads
      ::close(client);
    }
  }
  for (Connection& connection : connections) connection.stop_reading();
}

}  // namespace mezzo::cli
