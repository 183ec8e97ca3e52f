// The only file that includes Gloo's headers; built with USE_C10D_GLOO.
#include "mezzo/dist/group/gloo.h"

#include <sstream>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "mezzo/core/environment.h"
#include "mezzo/core/error.h"
#include "mezzo/dist/rendezvous/failure.h"

namespace mezzo::dist::detail {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout,
                                            const std::string& local_address) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  const std::string interfaces = environment_text("GLOO_SOCKET_IFNAME");
  if (!interfaces.empty()) {
    std::istringstream names(interfaces);
    for (std::string name; std::getline(names, name, ',');) {
      options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
    }
  } else {
    if (local_address.empty()) {
      mezzo::detail::raise<IoError>(
          "rank 0's address is on this machine's loopback, and it has no other; name a network "
          "interface in GLOO_SOCKET_IFNAME");
    }
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(local_address));
  }
  try {
    return c10::make_intrusive<c10d::ProcessGroupGloo>(store, static_cast<int>(rank),
                                                       static_cast<int>(world_size), options);
  } catch (const c10::Error&) {
    // c10d wraps errors of Gloo and the store in this type; a lack of memory or threads has
    // another.
    note_failure_of_another();
    throw;
  }
}

}  // namespace mezzo::dist::detail
