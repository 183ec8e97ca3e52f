#include "mezzo/core/huge_pages.h"

#ifdef __linux__
#include <cstdint>

#include <sys/mman.h>
#endif

namespace mezzo {

#ifdef __linux__
void advise_huge_pages(void* data, std::size_t bytes) {
  constexpr std::size_t kSmallest = std::size_t{4} << 20, kPage = 4096;
  if (bytes < kSmallest) return;
  const auto begin = (reinterpret_cast<std::uintptr_t>(data) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / kPage * kPage;
  static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
}
#else
void advise_huge_pages(void* /*data*/, std::size_t /*bytes*/) {}
#endif

}  // namespace mezzo
