#include "mezzo/message_passing/backend_info.h"

#include "mezzo/core/error.h"
#include "mezzo/kernels/backend.h"

namespace mezzo {

std::string describe_backends() {
  const std::string_view chosen = cpu_backend().name;
  std::string found, lacking;
  for (const BackendStatus& one : cpu_backends()) {
    if (one.backend != nullptr) {
      found += fmt::format("{}{}", found.empty() ? "" : ", ", one.name);
    } else {
      lacking += fmt::format("; {} needs {}", one.name, one.missing);
    }
  }
  return fmt::format("{} (found: {}{})", chosen, found, lacking);
}

}  // namespace mezzo
