#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace mezzo::dist::detail {

/// Connects all ranks with one another over TCP. Blocks until they are, at most for `timeout`.
/// local_address: a number of this machine at which the others reach it; GLOO_SOCKET_IFNAME (names
/// of network interfaces, with commas between) takes its place where it is set. Throws what c10d
/// throws, and IoError without either.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout,
                                            const std::string& local_address);

}  // namespace mezzo::dist::detail
