#include "mezzo/dist/local_address.h"

#include <array>
#include <memory>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mezzo/core/error.h"

namespace mezzo::dist::detail {
namespace {

std::string numbers_of(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  const int error =
      getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? std::string(text.data()) : std::string();
}

bool is_loopback(const std::string& numbers) {
  return numbers.rfind("127.", 0) == 0 || numbers == "::1";
}

/// The source address that the system picks towards `target`; nothing is sent.
std::string source_towards(const addrinfo& target) {
  const int descriptor = socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return {};
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  auto* own_address = reinterpret_cast<sockaddr*>(&own);
  const bool known = connect(descriptor, target.ai_addr, target.ai_addrlen) == 0 &&
                     getsockname(descriptor, own_address, &size) == 0;
  close(descriptor);
  return known ? numbers_of(own_address, size) : std::string();
}

std::string source_towards(const std::string& address) {
  // IPv4 first: "localhost" has both, and Gloo's other ends must come to the same answer.
  for (const int family : {AF_INET, AF_UNSPEC}) {
    addrinfo hints{};
    hints.ai_family = family;
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(address.c_str(), "1", &hints, &found) != 0) continue;
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
    for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
      std::string source = source_towards(*target);
      if (!source.empty()) return source;
    }
  }
  return {};
}

/// The first address of a network interface that is up and no loopback; empty without one.
std::string first_network_address() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(found, &freeifaddrs);
  for (const ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
    const bool usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    return numbers_of(entry->ifa_addr, sizeof(sockaddr_in));
  }
  return {};
}

}  // namespace

std::string find_local_address(const std::string& address, bool one_host) {
  std::string source = source_towards(address);
  if (source.empty())
    mezzo::detail::raise<IoError>("dist::init: there is no way to the address '{}'", address);
  if (one_host || !is_loopback(source)) return source;
  // Many a machine calls its own name 127.0.1.1, where no other host finds it.
  source = first_network_address();
  if (source.empty()) {
    mezzo::detail::raise<IoError>(
        "dist::init: '{}' is this machine's loopback, and it has no other address", address);
  }
  return source;
}

}  // namespace mezzo::dist::detail
