#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/kernels/cuda_stamp.h"

const mezzo::CudaKernels* mezzo_cuda_kernels() {
  using namespace mezzo::cuda;
  static constexpr mezzo::CudaKernels kTable = {
      .stamp = mezzo::cuda_kernels_stamp(),
      .spmm = {spmm_workspace, spmm},
      .sddmm = {sddmm_workspace, sddmm},
      .message_grad = {message_grad_workspace, message_grad},
      .softmax = {softmax_workspace, softmax},
      .softmax_grad = {softmax_grad_workspace, softmax_grad},
      .attention = {attention_workspace, attention},
      .attention_state = {attention_state_workspace, attention_state},
      .attention_grad = {attention_grad_workspace, attention_grad},
      .weighted_grad = {weighted_grad_workspace, weighted_grad},
      .gatv2_scores = {gatv2_scores_workspace, gatv2_scores},
      .gatv2_scores_grad = {gatv2_scores_grad_workspace, gatv2_scores_grad},
      .dropout = {dropout_workspace, dropout},
      .gather = {gather_workspace, gather},
      .draw = {draw_workspace, draw},
      .renumber = {renumber_workspace, renumber},
  };
  return &kTable;
}
