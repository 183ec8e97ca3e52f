#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"

namespace torch::nn {
class Module;  // its header costs seconds
}

namespace mezzo::dist {

/// How split() cuts.
struct SplitOptions {
  bool shuffle = false;
  std::uint64_t seed = 0;  ///< of the shuffle; the same on all ranks
  /// Leaves out what does not divide evenly; otherwise the last rank's share is filled up with
  /// items of its own again, so that all ranks have as many.
  bool drop_last = false;
};

/// This rank's share of `ids` ([n], any dtype and device): ceil(n / ranks) consecutive ones, with
/// drop_last floor(n / ranks), after the shuffle where one is asked for. A rank whose share would
/// be empty, which takes n < ranks * (ranks - 1), gets items of others. Equal seeds
/// shuffle equally on all ranks. The rule of DGL's use_ddp (torch's DistributedSampler takes every
/// ranks-th item, and fills up with the first ones). Allocates the share, with a shuffle 8 n bytes
/// for a moment; does not communicate. Throws InvalidArgument for another shape, and for fewer ids
/// than ranks; none at all give none.
MEZZO_API at::Tensor split(const at::Tensor& ids, const ProcessGroup& group,
                           SplitOptions options = {});

/// Gives every parameter and buffer of the module rank 0's numbers, packed by dtype. Communicates
/// and blocks. Throws InvalidArgument, on every rank, if names, shapes or dtypes are not rank
/// 0's; IoError as the group's collectives do.
MEZZO_API void broadcast_parameters(torch::nn::Module& module, const ProcessGroup& group);

/// How gradients travel. Sums are made in the type that travels, divisions in float32, and 16-bit
/// gradients take one more rounding, to their own type.
enum class GradientTraffic : std::uint8_t {
  kFloat32,  ///< 16-bit ones as float32, others as they are
  /// float32 and bfloat16 ones as bfloat16: half the bytes. Each rank's gradient and each of the
  /// ranks - 1 additions is rounded to 8 bits: an error of at most ranks * 2^-8 (to first order) of
  /// the sum of absolute values. Others as for kFloat32.
  kBFloat16,
};

/// How all_reduce_gradients() packs and reduces.
struct GradientOptions {
  ReduceOp op = ReduceOp::kMean;                        ///< kSum or kMean
  std::int64_t bucket_bytes = std::int64_t{25} << 20;   ///< gradients are packed up to this size
  GradientTraffic traffic = GradientTraffic::kFloat32;  ///< the same on all ranks
  /// float32 numbers on the gradients' device that are summed (never divided) in place, as float32
  /// whatever the traffic: a loss, a count. In the first bucket; with kBFloat16 in one of their
  /// own. As many on all ranks; undefined: none.
  at::Tensor beside = {};
  /// Called once, while the last bucket travels: work that would else be done afterwards, such as
  /// preparing the next batch. What it throws is thrown when the gradients have arrived.
  std::function<void()> meanwhile = {};
};

/// Reduces the gradients of the parameters over the ranks, in place, in buckets of one dtype each,
/// of which two are in memory at a time: one is packed while another one travels. A parameter
/// without a gradient counts as zeros where another rank has one, and gets one; without any, it is
/// left alone, though zeros travel. One listed twice is reduced once. Blocks. Throws
/// InvalidArgument for another op, bucket_bytes < 1 or dtype of `beside`, and, on every rank, if
/// a gradient is sparse or of another dtype than its parameter, with gradients then undefined;
/// IoError as the group's collectives do, with gradients then undefined too.
MEZZO_API void all_reduce_gradients(const std::vector<at::Tensor>& parameters,
                                    const ProcessGroup& group, const GradientOptions& options = {});

/// How a DataParallel packs and sends.
struct DataParallelOptions {
  std::int64_t bucket_bytes = std::int64_t{25} << 20;  ///< at least 1
  /// Parameters that a step does not use are no error: the graph is searched in each step. Those
  /// that no rank has used keep their gradient. Each step has to use one parameter at least.
  bool find_unused_parameters = false;
  GradientTraffic traffic = GradientTraffic::kFloat32;
};

/// Means of gradients over the ranks, under way while the backward goes on (c10d's Reducer). Each
/// step is
///
///     loss = ...;                // forward
///     parallel.prepare({loss});
///     loss.backward();           // returns with the means in the gradients
///
/// A backward pass without prepare() throws LogicError, unless a NoSync lives. One that misses a
/// parameter throws InvalidArgument, which names it; after either the object is of no more use.
/// Gradients are those of the parameters that required one at construction; dense. One process:
/// nothing is done. Takes as much memory as the gradients. With modules that communicate in the
/// backward (SyncBatchNorm1d) all ranks have to use the same parameters. In a group that checks its
/// collectives prepare() and each bucket are compared first, which waits for all ranks: a step that
/// another rank does not take throws InvalidArgument from either, from the backward as after a
/// missed parameter. One thread.
class MEZZO_API DataParallel {
 public:
  /// Gives all ranks rank 0's parameters and buffers. The module outlives it. Throws
  /// InvalidArgument as broadcast_parameters() does, and for a module without parameters that
  /// require a gradient.
  DataParallel(std::shared_ptr<torch::nn::Module> module, ProcessGroup group,
               DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// outputs: what the one backward of this step will start from. Communicates in the second step,
  /// in which the buckets get the order in which gradients came. Throws InvalidArgument if no
  /// output requires a gradient, LogicError after a backward that did not end.
  void prepare(const std::vector<at::Tensor>& outputs);

  /// While the result lives, prepare() does nothing and backwards only accumulate on their own
  /// rank; the first backward after it reduces the gradients with all that they have accumulated.
  class NoSync;
  [[nodiscard]] NoSync no_sync();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class MEZZO_API DataParallel::NoSync {
 public:
  explicit NoSync(DataParallel& parallel);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  DataParallel& parallel_;
};

}  // namespace mezzo::dist
