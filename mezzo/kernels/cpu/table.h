#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "mezzo/kernels/backend.h"
#include "mezzo/kernels/cpu/attention/attention_grad_rows.h"
#include "mezzo/kernels/cpu/attention/attention_rows.h"
#include "mezzo/kernels/cpu/attention/gatv2_rows.h"
#include "mezzo/kernels/cpu/attention/softmax_rows.h"
#include "mezzo/kernels/cpu/dense_rows.h"
#include "mezzo/kernels/cpu/draw_rows.h"
#include "mezzo/kernels/cpu/dropout_rows.h"
#include "mezzo/kernels/cpu/edge_mlp_rows.h"
#include "mezzo/kernels/cpu/sparse/message_grad_rows.h"
#include "mezzo/kernels/cpu/sparse/sddmm_rows.h"
#include "mezzo/kernels/cpu/sparse/spmm_rows.h"
#include "mezzo/kernels/cpu/sparse/weighted_grad_rows.h"

namespace mezzo::kernels {

/// The kernels of one instruction set from its vectors: F32 of float, F64 of double, and their
/// integers. If Only is not void, only the kernels of this dtype.
template <class F32, class F64, class Only = void>
struct Table {
  using Integers = typename F32::Integers;
  template <class T>
  using Lanes = std::conditional_t<std::is_same_v<typename T::Accum, double>, F64, F32>;

  template <class T>
  static constexpr bool includes = std::is_void_v<Only> || std::is_same_v<Only, T>;

  /// Every kernel is an overload of `compute`, for Args::DTypes or else all dtypes.
  template <class Args>
  static void run(const Args& a) {
    const auto of_dtype = [&]<class T>() {
      if constexpr (includes<T>) compute<Lanes<T>, T>(a);
    };
    if constexpr (requires { typename Args::DTypes; }) {
      detail::visit(typename Args::DTypes{}, a.dtype, of_dtype);
    } else {
      detail::visit(DTypes{}, a.dtype, of_dtype);
    }
  }
  template <class Id>
  static void run(const UniformDraws<Id>& draws) {
    if constexpr (std::is_void_v<Only>) draw_rows<Integers>(draws);
  }

  static void widen(DType dtype, const void* from, float* to, std::int64_t count) {
    detail::visit(DenseDTypes{}, dtype, [&]<class T>() {
      widen_row<F32, T>(static_cast<const typename T::Storage*>(from), count, count, to);
    });
  }
  static void narrow(DType dtype, const float* from, void* to, std::int64_t count) {
    detail::visit(DenseDTypes{}, dtype, [&]<class T>() {
      auto* p = static_cast<typename T::Storage*>(to);
      std::int64_t i = 0;
      for (; count - i >= F32::width; i += F32::width) F32::load_accum(from + i).store(T{}, p + i);
      if (i < count) F32::load_accum(from + i, count - i).store(T{}, p + i, count - i);
    });
  }

  static constexpr CpuBackend backend(std::string_view name) {
    CpuBackend backend{.name = name, .kernels = {}, .widen = &widen, .narrow = &narrow};
    detail::for_each(CpuKernelList{}, [&]<class Args>() {
      std::get<CpuKernel<Args>>(backend.kernels) = static_cast<CpuKernel<Args>>(&run);
    });
    return backend;
  }
};

}  // namespace mezzo::kernels
