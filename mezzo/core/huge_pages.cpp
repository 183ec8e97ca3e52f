#include "mezzo/core/huge_pages.h"

#ifdef __linux__
#include <cstdint>

#include <sys/mman.h>
#endif

namespace mezzo {

#ifdef __linux__
void advise_huge_pages(void* data, std::size_t bytes) {
  constexpr std::size_t kMinimum = std::size_t{4} << 20, kPage = 4096;
  if (bytes < kMinimum) return;
  const auto past_page = reinterpret_cast<std::uintptr_t>(data) % kPage;
  const std::size_t skipped = past_page == 0 ? 0 : kPage - past_page;
  const std::size_t whole_pages = (bytes - skipped) / kPage * kPage;
  static_cast<void>(madvise(static_cast<char*>(data) + skipped, whole_pages, MADV_HUGEPAGE));
}
#else
void advise_huge_pages(void* /*data*/, std::size_t /*bytes*/) {}
#endif

}  // namespace mezzo
