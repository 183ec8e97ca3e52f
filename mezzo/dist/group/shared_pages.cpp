#include "mezzo/dist/group/shared_pages.h"

#include <fstream>
#include <string>

#include "mezzo/core/error.h"

namespace mezzo::dist {

std::int64_t proportional_bytes() {
  constexpr const char* kFile = "/proc/self/smaps_rollup";
  std::ifstream file(kFile);
  for (std::string word; file >> word;) {
    std::int64_t kibibytes = 0;
    if (word == "Pss:" && file >> kibibytes) return kibibytes * 1024;
  }
  throw IoError(fmt::format("{}: expected a line 'Pss: <number> kB'", kFile));
}

}  // namespace mezzo::dist
