#include <cstdint>

#include "mezzo/core/type_list.h"
#include "mezzo/kernels/cuda/device.h"
#include "mezzo/kernels/cuda/dropout_words.h"
#include "mezzo/kernels/cuda/kernels.h"

namespace mezzo::kernels::cuda {

namespace {

struct DropoutTuning {
  static constexpr int kThreads = 256;
};

/// Element i of a draw, in word order: word 0 decides the first two.
template <class A>
__device__ A kept_or_zero(A x, const std::uint32_t (&words)[4], int i, std::uint32_t threshold,
                          A scale) {
  const std::uint32_t level = (words[i / 2] >> (16 * (i % 2))) & 0xFFFF;
  // A selection, not a product: dropped elements are 0 even if x is inf or NaN.
  return level >= threshold ? x * scale : A(0);
}

/// One thread per draw. `packed`: both arrays are aligned to 16 bytes.
template <class T>
__global__ void __launch_bounds__(DropoutTuning::kThreads)
    dropout_kernel(DropoutArgs a, typename T::Accum scale, bool packed) {
  using Accum = typename T::Accum;
  using Storage = typename T::Storage;
  constexpr int kElements = static_cast<int>(kElementsPerDraw);
  constexpr int kPack = static_cast<int>(16 / sizeof(Storage));
  const std::int64_t draw =
      a.draw_begin + std::int64_t{blockIdx.x} * DropoutTuning::kThreads + threadIdx.x;
  if (draw >= a.draw_end) return;
  std::uint32_t words[4];
  dropout_words(a.dropout, draw, words);
  const std::int64_t first = draw * kElementsPerDraw;
  const Storage* x = static_cast<const Storage*>(a.x) + first;
  Storage* out = static_cast<Storage*>(a.out) + first;
  const std::uint32_t threshold = a.dropout.threshold;
  if (packed && first + kElements <= a.count) {
#pragma unroll
    for (int from = 0; from < kElements; from += kPack) {
      Accum v[kPack];
      load<T, kPack>(x + from, v);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        v[i] = kept_or_zero(v[i], words, from + i, threshold, scale);
      }
      store<T, kPack>(v, out + from);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    if (first + i < a.count) {
      out[i] = narrowed<T>(kept_or_zero(widened(x[i]), words, i, threshold, scale));
    }
  }
}

}  // namespace

template <>
std::int64_t Kernel<DropoutArgs>::workspace(const DropoutArgs& /*args*/,
                                            std::int64_t /*num_entries*/) {
  return 0;
}

template <>
void Kernel<DropoutArgs>::run(const DropoutArgs& args, const CudaLaunch& context) {
  const bool packed = is_aligned(args.x, 16) && is_aligned(args.out, 16);
  const std::int64_t blocks = ceil_div(args.draw_end - args.draw_begin, DropoutTuning::kThreads);
  detail::visit(DTypes{}, args.dtype, [&]<class T>() {
    using Accum = typename T::Accum;
    const auto scale =
        static_cast<Accum>(kDropoutLevels / (kDropoutLevels - args.dropout.threshold));
    launch("dropout", &dropout_kernel<T>, {blocks}, DropoutTuning::kThreads, context.stream, args,
           scale, packed);
  });
}

}  // namespace mezzo::kernels::cuda
