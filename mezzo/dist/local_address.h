#pragma once

#include <string>

namespace mezzo::dist::detail {

/// This machine's address, in numbers, from which `address` (a host's name or number) is reached:
/// the one at which the other processes reach this machine. Not on the loopback unless all are on
/// this host. Throws IoError where the name is unknown or there is no such address.
std::string find_local_address(const std::string& address, bool one_host);

}  // namespace mezzo::dist::detail
