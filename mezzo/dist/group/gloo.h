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

/// Connects all ranks with one another over TCP. Blocks for at most `timeout`. local_address: the
/// numeric address at which others reach this machine; GLOO_SOCKET_IFNAME (comma-separated
/// interface names) overrides it. Rethrows c10d's exceptions; throws IoError if neither is set.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout,
                                            const std::string& local_address);

}  // namespace mezzo::dist::detail
