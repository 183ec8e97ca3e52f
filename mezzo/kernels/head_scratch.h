#pragma once

#include <cstdint>

namespace mezzo::kernels {

/// One number for each row and head (length = heads), or one for each row (length = 1).
struct HeadNumbers {
  const void* data = nullptr;
  bool is_accum = false;  ///< stored in the accumulator type, else in the kernel's dtype
  std::int64_t length = 1;
};

// Rows that edges gather may be padded with zeros for CUDA, so that each head's features begin at
// 16 bytes and are read in packs of 16 bytes. The CPU's kernels take no padding.

// The kernels that work by head split rows into chunks, so that their numbers per entry and head
// stay in the L1 cache.

/// Numbers (entries times heads) of a chunk: 4 KiB of float32.
inline constexpr std::int64_t kForwardNumbers = 1024;
/// The same if each is a vector: 16 KiB of float32 vectors of 64 bytes.
inline constexpr std::int64_t kGradNumbers = 256;
/// Elements of the widest vector of any backend.
inline constexpr std::int64_t kMostLanes = 16;

/// Entries of a chunk.
[[maybe_unused]] static constexpr std::int64_t chunk_entries(std::int64_t numbers,
                                                             std::int64_t heads) {
  return heads < numbers ? numbers / heads : 1;
}

/// Elements of the accumulator type that a kernel by head needs as scratch: at most 16 arrays of a
/// chunk's numbers, a vector for each number of a gradient's chunk, four arrays of `heads` vectors
/// and four of `heads` numbers, two rows, and padding of each array.
[[maybe_unused]] static constexpr std::int64_t head_scratch(std::int64_t heads,
                                                            std::int64_t features) {
  constexpr std::int64_t kPadding = 2 * kMostLanes;
  return 16 * (kForwardNumbers + heads + kPadding) +
         kMostLanes * (kGradNumbers + heads + kPadding) + 4 * (kMostLanes * heads + kPadding) +
         4 * (heads + kPadding) + 2 * (heads * features + kPadding) + kPadding;
}

}  // namespace mezzo::kernels
