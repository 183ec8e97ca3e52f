#include "mezzo/dist/rendezvous/local_address.h"

#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/rendezvous/reserved_port.h"

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

int datagram_socket(int family) {
  return ::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

/// The source address that the system picks for `target`; sends nothing.
std::string source_towards(const addrinfo& target) {
  const Descriptor socket(datagram_socket(target.ai_family));
  if (!socket.is_open()) return {};
  sockaddr_storage own{};
  socklen_t size = sizeof(own);
  auto* own_address = reinterpret_cast<sockaddr*>(&own);
  const bool known = ::connect(socket.get(), target.ai_addr, target.ai_addrlen) == 0 &&
                     ::getsockname(socket.get(), own_address, &size) == 0;
  return known ? numbers_of(own_address, size) : std::string();
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// The addresses of a host; null if it has none.
Addresses addresses_of(const std::string& name, int family, int flags) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = flags;
  addrinfo* addresses = nullptr;
  if (getaddrinfo(name.c_str(), "1", &hints, &addresses) != 0) addresses = nullptr;
  return {addresses, &freeaddrinfo};
}

/// Whether an interface of this machine has the address.
bool is_own(const std::string& numbers) {
  const Addresses addresses = addresses_of(numbers, AF_UNSPEC, AI_NUMERICHOST | AI_PASSIVE);
  if (addresses == nullptr) return false;
  const Descriptor socket(datagram_socket(addresses->ai_family));
  if (!socket.is_open()) return false;
  sockaddr_storage any_port{};
  std::memcpy(&any_port, addresses->ai_addr, addresses->ai_addrlen);
  if (addresses->ai_family == AF_INET) reinterpret_cast<sockaddr_in*>(&any_port)->sin_port = 0;
  if (addresses->ai_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(&any_port)->sin6_port = 0;
  return ::bind(socket.get(), reinterpret_cast<sockaddr*>(&any_port), addresses->ai_addrlen) == 0;
}

/// Address of the first network interface that is up, has a carrier and is not loopback; empty if
/// none.
std::string first_network_address() {
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(interfaces, &freeifaddrs);
  constexpr unsigned kUsable = IFF_UP | IFF_RUNNING;
  for (const ifaddrs* interface = interfaces; interface != nullptr;
       interface = interface->ifa_next) {
    const bool usable =
        (interface->ifa_flags & kUsable) == kUsable && (interface->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || interface->ifa_addr == nullptr || interface->ifa_addr->sa_family != AF_INET) {
      continue;
    }
    return numbers_of(interface->ifa_addr, sizeof(sockaddr_in));
  }
  return {};
}

}  // namespace

Route find_route(const std::string& address) {
  // IPv4 first: "localhost" has both, and all ranks must choose the same one for Gloo.
  for (const int family : {AF_INET, AF_UNSPEC}) {
    const Addresses addresses = addresses_of(address, family, 0);
    for (const addrinfo* target = addresses.get(); target != nullptr; target = target->ai_next) {
      std::string source = source_towards(*target);
      if (source.empty()) continue;
      return {std::move(source), numbers_of(target->ai_addr, target->ai_addrlen)};
    }
  }
  mezzo::detail::raise<IoError>("dist::init: there is no way to the address '{}'", address);
}

std::string find_local_address(const std::string& source,
                               const std::vector<std::string>& targets_elsewhere) {
  if (targets_elsewhere.empty() || !is_loopback(source)) return source;
  // Many machines map their own name to 127.0.1.1, which other hosts cannot reach.
  for (const std::string& target : targets_elsewhere) {
    if (!is_loopback(target) && is_own(target)) return target;
  }
  return first_network_address();
}

}  // namespace mezzo::dist::detail
