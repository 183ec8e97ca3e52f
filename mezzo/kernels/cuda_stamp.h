#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "mezzo/core/dtype.h"
#include "mezzo/core/fnv.h"
#include "mezzo/core/type_list.h"
#include "mezzo/kernels/binary_op.h"
#include "mezzo/kernels/cuda_kernels.h"
#include "mezzo/kernels/reduce_op.h"
#include "mezzo/version.h"

// The stamps of the tables of libmezzo_cuda.so: a library that was built from other headers, whose
// structs may differ, is found out when it is opened. Both sides compute a stamp from their own
// headers. Apart from cuda_kernels.h, for nvcc has no need of it.

namespace mezzo {

/// To be raised by a change that LayoutHash does not see: members of one size that change places or
/// meaning, other parameters or virtual functions.
inline constexpr std::uint64_t kCudaRevision = 1;

namespace detail {

/// In place of any number, enumerator or pointer where members are counted.
struct AnyScalar {
  template <class T, class = std::enable_if_t<std::is_scalar_v<T>>>
  operator T() const;  // NOLINT: converts; never called
};

/// Numbers, enumerators and pointers in an aggregate, those in its members included (whose braces
/// may be left out): a flag in what was padding is seen.
template <class T, class... Scalars>
constexpr std::size_t num_scalars() {
  if constexpr (requires { T{Scalars{}..., AnyScalar{}}; }) {
    return num_scalars<T, Scalars..., AnyScalar>();
  } else {
    return sizeof...(Scalars);
  }
}

}  // namespace detail

/// A hash of what two sides of a border have to agree on.
class LayoutHash {
 public:
  constexpr LayoutHash& add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      value_ = fnv_step(value_, (number >> shift) & 0xFFU);
    }
    return *this;
  }

  /// Size and number of scalars of each of these aggregates.
  template <class... Ts>
  constexpr LayoutHash& add_types() {
    (add(sizeof(Ts)).add(detail::num_scalars<Ts>()), ...);
    return *this;
  }

  /// The enumerators of a list and their names.
  template <class... Ts>
  constexpr LayoutHash& add_kinds(TypeList<Ts...> /*list*/) {
    (add(static_cast<std::uint64_t>(Ts::kind)).add_name(Ts::name), ...);
    return *this;
  }

  constexpr std::uint64_t value() const { return value_; }

 private:
  constexpr LayoutHash& add_name(std::string_view name) {
    for (const char letter : name) add(static_cast<unsigned char>(letter));
    return *this;
  }

  std::uint64_t value_ = kFnvBasis;
};

/// The stamp of this version with `hash`.
constexpr CudaStamp cuda_stamp(const LayoutHash& hash) {
  static_assert(kVersion.size() < sizeof(CudaStamp::version));
  CudaStamp stamp;
  stamp.mark = kCudaMark;
  for (std::size_t i = 0; i < kVersion.size(); ++i) stamp.version[i] = kVersion[i];
  stamp.layout = hash.value();
  return stamp;
}

namespace detail {

template <class... Args>
constexpr void add_arguments(LayoutHash& hash, const CudaKernel<Args>&... /*kernels*/) {
  hash.add_types<Args...>();
}

}  // namespace detail

/// The stamp of a CudaKernels that is built from these headers: of its kernels' arguments, in their
/// order, and of the lists whose enumerators they hold.
constexpr CudaStamp cuda_kernels_stamp() {
  const CudaKernels table{};
  // All members, or this does not compile.
  const auto& [stamp, spmm, sddmm, message_grad, softmax, softmax_grad, attention, attention_state,
               attention_grad, weighted_grad, gatv2_scores, gatv2_scores_grad, dropout, gather,
               draw, renumber] = table;
  LayoutHash hash;
  hash.add(kCudaRevision).add_types<CudaLaunch>();
  detail::add_arguments(hash, spmm, sddmm, message_grad, softmax, softmax_grad, attention,
                        attention_state, attention_grad, weighted_grad, gatv2_scores,
                        gatv2_scores_grad, dropout, gather, draw, renumber);
  hash.add_kinds(DTypes{}).add_kinds(BinaryOps{}).add_kinds(ReduceOps{});
  return cuda_stamp(hash);
}

}  // namespace mezzo
