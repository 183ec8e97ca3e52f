#pragma once

#include <string>
#include <vector>

#include "mezzo/core/export.h"

namespace mezzo::dist::detail {

/// Numeric addresses of both ends of a route.
struct Route {
  std::string source = {};  ///< this machine's address, as chosen by the system
  std::string target = {};
};

/// Finds the route to `address` (host name or number). Sends no data, but may query DNS. Throws
/// IoError if the name is unknown or the host is unreachable.
MEZZO_API Route find_route(const std::string& address);

/// Returns the address at which other processes reach this machine; empty if it has none. source:
/// this machine's end of the route to rank 0, which is used unless it is loopback and there are
/// other hosts. targets_elsewhere: rank 0's addresses as seen by other hosts. If one of these
/// belongs to this machine, returns it; else the address of the first interface that is up.
MEZZO_API std::string find_local_address(const std::string& source,
                                         const std::vector<std::string>& targets_elsewhere);

}  // namespace mezzo::dist::detail
