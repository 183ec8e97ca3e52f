#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mezzo/core/error.h"

namespace mezzo::dist::detail {

/// A file descriptor, closed by the destructor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

 private:
  int descriptor_ = -1;
};

/// Reserves a port of this machine while the socket is bound. Rank 0 can still listen on it:
/// sockets with SO_REUSEADDR exclude each other only once one listens.
class ReservedPort {
 public:
  /// number: 0 for any free port. Throws IoError if the port is not available.
  explicit ReservedPort(std::uint16_t number = 0) {
    if (!bind_to(socket_, number)) {
      throw IoError(fmt::format("{} of 127.0.0.1: {}",
                                number == 0 ? "a free port" : fmt::format("port {}", number),
                                std::strerror(errno)));
    }
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    number_ = ntohs(address.sin_port);
  }

  std::uint16_t number() const { return number_; }

  /// Waits up to 0.5 s for a process that listens. If other processes connected earlier, c10d would
  /// pause for half a second.
  void wait_for_listener() const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    Descriptor probe;
    while (bind_to(probe, number_) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  static bool bind_to(Descriptor& socket, std::uint16_t number) {
    socket = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(number);
    return ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
           ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }

  Descriptor socket_;
  std::uint16_t number_ = 0;
};

}  // namespace mezzo::dist::detail
