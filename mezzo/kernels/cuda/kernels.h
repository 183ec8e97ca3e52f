#pragma once

#include <cstdint>

#include "mezzo/kernels/cuda_kernels.h"

// What the .cu files give to the table in table.cpp; see CudaKernel.

namespace mezzo::cuda {

std::int64_t spmm_workspace(const SpmmArgs& args, std::int64_t num_slots);
void spmm(const SpmmArgs& args, const CudaLaunch& launch);

std::int64_t sddmm_workspace(const SddmmArgs& args, std::int64_t num_slots);
void sddmm(const SddmmArgs& args, const CudaLaunch& launch);

std::int64_t message_grad_workspace(const MessageGradArgs& args, std::int64_t num_slots);
void message_grad(const MessageGradArgs& args, const CudaLaunch& launch);

std::int64_t softmax_workspace(const SoftmaxArgs& args, std::int64_t num_slots);
void softmax(const SoftmaxArgs& args, const CudaLaunch& launch);
std::int64_t softmax_grad_workspace(const SoftmaxGradArgs& args, std::int64_t num_slots);
void softmax_grad(const SoftmaxGradArgs& args, const CudaLaunch& launch);

std::int64_t attention_workspace(const AttentionArgs& args, std::int64_t num_slots);
void attention(const AttentionArgs& args, const CudaLaunch& launch);
std::int64_t attention_state_workspace(const AttentionStateArgs& args, std::int64_t num_slots);
void attention_state(const AttentionStateArgs& args, const CudaLaunch& launch);
std::int64_t attention_grad_workspace(const AttentionGradArgs& args, std::int64_t num_slots);
void attention_grad(const AttentionGradArgs& args, const CudaLaunch& launch);

std::int64_t weighted_grad_workspace(const WeightedGradArgs& args, std::int64_t num_slots);
void weighted_grad(const WeightedGradArgs& args, const CudaLaunch& launch);

std::int64_t gatv2_scores_workspace(const GATv2ScoresArgs& args, std::int64_t num_slots);
void gatv2_scores(const GATv2ScoresArgs& args, const CudaLaunch& launch);
std::int64_t gatv2_scores_grad_workspace(const GATv2ScoresGradArgs& args, std::int64_t num_slots);
void gatv2_scores_grad(const GATv2ScoresGradArgs& args, const CudaLaunch& launch);

std::int64_t dropout_workspace(const DropoutArgs& args, std::int64_t num_slots);
void dropout(const DropoutArgs& args, const CudaLaunch& launch);

std::int64_t gather_workspace(const CudaGatherArgs& args, std::int64_t num_slots);
void gather(const CudaGatherArgs& args, const CudaLaunch& launch);

std::int64_t draw_workspace(const CudaDrawArgs& args, std::int64_t num_slots);
void draw(const CudaDrawArgs& args, const CudaLaunch& launch);
std::int64_t renumber_workspace(const CudaRenumberArgs& args, std::int64_t num_slots);
void renumber(const CudaRenumberArgs& args, const CudaLaunch& launch);

}  // namespace mezzo::cuda
