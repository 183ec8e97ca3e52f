#include <cstdint>

#include "mezzo/kernels/cuda/device.h"
#include "mezzo/kernels/cuda/kernels.h"

// Copies rows as raw words, as large as row size and alignment allow, so that 16-bit rows need no
// more instructions than others.

namespace mezzo::kernels::cuda {

namespace {

struct GatherTuning {
  static constexpr int kThreads = 256;
  static constexpr int kAhead = 2;  ///< words that a lane reads before its first write
};

/// Words copied by one instruction.
template <int kWords>
struct alignas(kWords * sizeof(std::uint32_t)) Words {
  std::uint32_t word[kWords];
};

/// `lanes` adjacent threads (a power of 2) copy a row.
template <class Word>
__global__ void __launch_bounds__(GatherTuning::kThreads) gather_rows(CudaGatherArgs a, int lanes) {
  constexpr int kAhead = GatherTuning::kAhead;
  const std::int64_t row = std::int64_t{blockIdx.x} * (GatherTuning::kThreads / lanes) +
                           static_cast<int>(threadIdx.x) / lanes;
  if (row >= a.num_rows) return;
  const std::int64_t words = a.row_bytes / static_cast<std::int64_t>(sizeof(Word));
  const Word* from = static_cast<const Word*>(a.table) + id_at(a.ids, row) * words;
  Word* to = static_cast<Word*>(a.out) + row * words;
  for (std::int64_t begin = static_cast<int>(threadIdx.x) % lanes; begin < words;
       begin += std::int64_t{kAhead} * lanes) {
    Word ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i * lanes < words) ahead[i] = from[begin + i * lanes];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (begin + i * lanes < words) to[begin + i * lanes] = ahead[i];
    }
  }
}

template <class Word>
bool fits(const CudaGatherArgs& a) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Word));
  return a.row_bytes % kBytes == 0 && is_aligned(a.table, kBytes) && is_aligned(a.out, kBytes);
}

template <class Word, class... Narrower>
void launch_gather(const CudaGatherArgs& a, void* stream) {
  if constexpr (sizeof...(Narrower) > 0) {
    if (!fits<Word>(a)) return launch_gather<Narrower...>(a, stream);
  }
  const std::int64_t words = a.row_bytes / static_cast<std::int64_t>(sizeof(Word));
  const int lanes = power_of_2(ceil_div(words, GatherTuning::kAhead), GatherTuning::kThreads);
  const std::int64_t blocks = ceil_div(a.num_rows, GatherTuning::kThreads / lanes);
  launch("gather", gather_rows<Word>, {blocks}, GatherTuning::kThreads, stream, a, lanes);
}

}  // namespace

template <>
std::int64_t Kernel<CudaGatherArgs>::workspace(const CudaGatherArgs& /*args*/,
                                               std::int64_t /*num_entries*/) {
  return 0;
}

template <>
void Kernel<CudaGatherArgs>::run(const CudaGatherArgs& args, const CudaLaunch& context) {
  if (args.row_bytes == 0) return;
  launch_gather<Words<4>, Words<2>, std::uint32_t, std::uint16_t, std::uint8_t>(args,
                                                                                context.stream);
}

}  // namespace mezzo::kernels::cuda
