#pragma once

#include <cstdint>
#include <tuple>

#include "mezzo/core/type_list.h"
#include "mezzo/kernels/attention.h"
#include "mezzo/kernels/cuda_sampling.h"
#include "mezzo/kernels/dense.h"
#include "mezzo/kernels/dropout.h"
#include "mezzo/kernels/edge_mlp.h"
#include "mezzo/kernels/edge_softmax.h"
#include "mezzo/kernels/gatv2_scores.h"
#include "mezzo/kernels/message_grad.h"
#include "mezzo/kernels/sampling.h"
#include "mezzo/kernels/sddmm.h"
#include "mezzo/kernels/spmm.h"
#include "mezzo/kernels/weighted_grad.h"

// Lists of all kernels by the struct of their arguments. The tables of the CPU backends (backend.h)
// and of the CUDA library (cuda_kernels.h) derive from these lists.

namespace mezzo::kernels {

/// The kernels of both CPU and CUDA.
using KernelList = TypeList<SpmmArgs, SddmmArgs, MessageGradArgs, SoftmaxArgs, SoftmaxGradArgs,
                            AttentionArgs, AttentionStateArgs, AttentionGradArgs, WeightedGradArgs,
                            GATv2ScoresArgs, GATv2ScoresGradArgs, DropoutArgs>;

template <class... Ts, class... Us>
TypeList<Ts..., Us...> joined(TypeList<Ts...>, TypeList<Us...>);

template <template <class> class Entry, class... Args>
std::tuple<Entry<Args>...> table_of(TypeList<Args...>);

/// The kernels of the CPU.
using CpuKernelList = decltype(joined(
    KernelList{}, TypeList<UniformDraws<std::int32_t>, UniformDraws<std::int64_t>, PackArgs,
                           RowsProductArgs, TransposedProductArgs, AddRowsArgs, ReluGradArgs,
                           NormalizeRowsArgs, NormalizeRowsGradArgs, ScatterRowsArgs>{}));

/// The kernels of CUDA.
using CudaKernelList =
    decltype(joined(KernelList{}, TypeList<CudaGatherArgs, CudaDrawArgs, CudaRenumberArgs>{}));

/// A tuple with one Entry<Args> for each kernel of the list.
template <template <class> class Entry, class List>
using KernelTable = decltype(table_of<Entry>(List{}));

}  // namespace mezzo::kernels
