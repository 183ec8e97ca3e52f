#pragma once

#include <cstdint>

namespace mezzo::bench {

/// Bytes of memory that the process can still take without swapping (Linux's MemAvailable), after
/// returning freed pages to the system. The largest int64 if unknown.
std::int64_t available_bytes();

/// How memory is read by read_bandwidth.
struct ReadPattern {
  std::int64_t bytes = std::int64_t{1} << 30;  ///< of the array, at least one row
  std::int64_t row_bytes = 4096;               ///< read contiguously; a multiple of 64
  bool shuffled = false;                       ///< rows in random order instead of ascending
  int threads = 1;                             ///< each reads its own part of the rows
};

/// Bytes read per second, the best of `passes` passes over the array. Allocates the array.
double read_bandwidth(const ReadPattern& pattern, int passes = 5);

/// read_bandwidth of ascending rows with as many threads as libtorch uses: the limit of work that
/// misses the caches. Measured once per process. The array is 1 GiB, less if memory is short.
double stream_bandwidth();

}  // namespace mezzo::bench
