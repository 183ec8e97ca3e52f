#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "mezzo/kernels/backend.h"
#include "mezzo/kernels/cpu/attention_grad_rows.h"
#include "mezzo/kernels/cpu/attention_rows.h"
#include "mezzo/kernels/cpu/dense_rows.h"
#include "mezzo/kernels/cpu/draw_rows.h"
#include "mezzo/kernels/cpu/dropout_rows.h"
#include "mezzo/kernels/cpu/gatv2_rows.h"
#include "mezzo/kernels/cpu/message_grad_rows.h"
#include "mezzo/kernels/cpu/sddmm_rows.h"
#include "mezzo/kernels/cpu/softmax_rows.h"
#include "mezzo/kernels/cpu/spmm_rows.h"
#include "mezzo/kernels/cpu/weighted_grad_rows.h"

namespace mezzo {

/// The kernels of one instruction set from its lanes: F32 of float, F64 of double, and the integers
/// that both have.
template <class F32, class F64>
struct Table {
  using Integers = typename F32::Integers;
  template <class T>
  using Lanes = std::conditional_t<std::is_same_v<typename T::Accum, double>, F64, F32>;

  static void spmm(const SpmmArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { spmm_rows<Lanes<T>, T>(a); });
  }
  static void sddmm(const SddmmArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { sddmm_rows<Lanes<T>, T>(a); });
  }
  static void message_grad(const MessageGradArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { message_grad_rows<Lanes<T>, T>(a); });
  }
  static void softmax(const SoftmaxArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { softmax_rows<Lanes<T>, T>(a); });
  }
  static void softmax_grad(const SoftmaxGradArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { softmax_grad_rows<Lanes<T>, T>(a); });
  }
  static void attention(const AttentionArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { attention_rows<Lanes<T>, T>(a); });
  }
  static void attention_state(const AttentionStateArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { attention_state_rows<Lanes<T>, T>(a); });
  }
  static void attention_grad(const AttentionGradArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { attention_grad_rows<Lanes<T>, T>(a); });
  }
  static void weighted_grad(const WeightedGradArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { weighted_grad_rows<Lanes<T>, T>(a); });
  }
  static void gatv2_scores(const GATv2ScoresArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { gatv2_scores_rows<Lanes<T>, T>(a); });
  }
  static void gatv2_scores_grad(const GATv2ScoresGradArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { gatv2_scores_grad_rows<Lanes<T>, T>(a); });
  }
  static void dropout(const DropoutArgs& a) {
    visit(DTypes{}, a.dtype, [&]<class T>() { dropout_rows<Lanes<T>, T>(a); });
  }

  using SixteenBits = TypeList<BFloat16, Float16>;

  static void pack(const PackArgs& a) {
    visit(SixteenBits{}, a.dtype, [&]<class T>() { pack_panels<F32, T>(a); });
  }
  static void multiply_rows(const RowsProductArgs& a) {
    visit(SixteenBits{}, a.dtype, [&]<class T>() { rows_product<F32, T>(a); });
  }
  static void multiply_transposed(const TransposedProductArgs& a) {
    visit(SixteenBits{}, a.dtype, [&]<class T>() { transposed_product<F32, T>(a); });
  }
  static void widen(DType dtype, const void* from, float* to, std::int64_t count) {
    visit(SixteenBits{}, dtype, [&]<class T>() {
      widen_row<F32, T>(static_cast<const typename T::Storage*>(from), count, count, to);
    });
  }
  static void narrow(DType dtype, const float* from, void* to, std::int64_t count) {
    visit(SixteenBits{}, dtype, [&]<class T>() {
      auto* p = static_cast<typename T::Storage*>(to);
      std::int64_t i = 0;
      for (; count - i >= F32::width; i += F32::width) F32::load_accum(from + i).store(T{}, p + i);
      if (i < count) F32::load_accum(from + i, count - i).store(T{}, p + i, count - i);
    });
  }

  static constexpr CpuBackend backend(std::string_view name) {
    return {.name = name,
            .spmm = &spmm,
            .sddmm = &sddmm,
            .message_grad = &message_grad,
            .softmax = &softmax,
            .softmax_grad = &softmax_grad,
            .attention = &attention,
            .attention_state = &attention_state,
            .attention_grad = &attention_grad,
            .weighted_grad = &weighted_grad,
            .gatv2_scores = &gatv2_scores,
            .gatv2_scores_grad = &gatv2_scores_grad,
            .dropout = &dropout,
            .draw_int32 = &kernels::draw_rows<Integers, std::int32_t>,
            .draw_int64 = &kernels::draw_rows<Integers, std::int64_t>,
            .pack_panels = &pack,
            .rows_product = &multiply_rows,
            .transposed_product = &multiply_transposed,
            .widen = &widen,
            .narrow = &narrow};
  }
};

}  // namespace mezzo
