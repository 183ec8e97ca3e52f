#pragma once

#include <string>
#include <vector>

#include "mezzo/core/export.h"

namespace mezzo::dist::detail {

/// Both ends of a way, in numbers.
struct Route {
  std::string source = {};  ///< the address of this machine that the system picks for it
  std::string target = {};
};

/// The way to `address` (a host's name or number). Sends nothing, but may ask for the name. Throws
/// IoError if the name is unknown or there is no way.
MEZZO_API Route find_route(const std::string& address);

/// The address at which the other processes reach this machine; empty if it has none. source:
/// that of this machine's way to rank 0, which serves unless it is on the loopback and there are
/// other hosts. targets_elsewhere: where the processes of other hosts find rank 0. If such a target
/// is this machine's own it is the address, else that of the first network interface that is up.
MEZZO_API std::string find_local_address(const std::string& source,
                                         const std::vector<std::string>& targets_elsewhere);

}  // namespace mezzo::dist::detail
