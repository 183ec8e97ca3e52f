#include <vector>

#include "mezzo/kernels/backend.h"

#include "kernels/pieces.h"

namespace mezzo::test {

std::vector<Kernels> kernels_under_test() {
  std::vector<Kernels> all;
  for (const BackendStatus& one : cpu_backends()) {
    if (one.backend != nullptr) all.push_back({*one.backend});
  }
  return all;
}

}  // namespace mezzo::test
