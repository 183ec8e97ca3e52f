#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/amp/scaler/grad_scaler.h"
#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"

namespace torch::nn {
class Module;  // its header is slow to compile
}

namespace mezzo::dist {

/// Options of split().
struct SplitOptions {
  bool shuffle = false;
  std::uint64_t seed = 0;  ///< seed of the shuffle; the same on all ranks
  /// Drops the remainder of an uneven division. Otherwise the last rank repeats some of its items,
  /// so that all ranks have the same number.
  bool drop_last = false;
};

/// Returns this rank's share of `ids` ([n], any dtype and device): ceil(n / ranks) consecutive
/// items, or floor(n / ranks) with drop_last, after an optional shuffle. A rank whose share would
/// be empty (only if n < ranks * (ranks - 1)) repeats items of other ranks. Equal seeds give equal
/// shuffles. Same rule as DGL's use_ddp; torch's DistributedSampler takes every ranks-th item.
/// Allocates the share, plus 8 n temporary bytes for a shuffle; does not communicate. Empty ids
/// give an empty share. Throws InvalidArgument for another shape or fewer ids than ranks.
MEZZO_API at::Tensor split(const at::Tensor& ids, const ProcessGroup& group,
                           SplitOptions options = {});

/// Copies rank 0's parameters and buffers to all ranks, packed by dtype. Communicates and blocks.
/// Throws InvalidArgument on every rank if names, shapes or dtypes differ from rank 0's; IoError
/// as the group's collectives do.
MEZZO_API void broadcast_parameters(torch::nn::Module& module, const ProcessGroup& group);

/// The dtype of gradients on the network. Sums are computed in that dtype, divisions in float32.
/// 16-bit gradients are rounded once more, to their own dtype.
enum class GradientTraffic : std::uint8_t {
  kFloat32,  ///< 16-bit gradients as float32, others unchanged
  /// float32 and bfloat16 gradients as bfloat16, which halves the bytes. Each gradient and each of
  /// the ranks - 1 additions is rounded to 8 bits: the error is at most ranks * 2^-8 (first order)
  /// of the sum of absolute values. Others as for kFloat32.
  kBFloat16,
};

/// Options of all_reduce_gradients().
struct GradientOptions {
  ReduceOp op = ReduceOp::kMean;                        ///< kSum or kMean
  std::int64_t bucket_bytes = std::int64_t{25} << 20;   ///< gradients are packed up to this size
  GradientTraffic traffic = GradientTraffic::kFloat32;  ///< the same on all ranks
  /// Optional float32 values on the gradients' device, e.g. a loss or a count. Summed in place in
  /// float32, never divided. Part of the first bucket; with kBFloat16 in a separate bucket. The
  /// same number of values on all ranks.
  at::Tensor beside = {};
  /// Called once while the last bucket is sent, e.g. to prepare the next batch. If it throws, the
  /// exception is rethrown after the gradients have arrived.
  std::function<void()> meanwhile = {};
};

/// Reduces the gradients of the parameters over the ranks in place, in buckets of one dtype. Two
/// buckets are in memory at a time: one is packed while another is sent. A missing gradient counts
/// as zeros and is created if another rank has one; if no rank has one, it stays undefined. A
/// parameter listed twice is reduced once. Blocks. Throws InvalidArgument for another op,
/// bucket_bytes < 1 or another dtype of `beside`, and on every rank if a gradient is sparse or
/// differs in dtype from its parameter; IoError as the group's collectives do. After an error on
/// every rank or an IoError the gradients are unspecified.
MEZZO_API void all_reduce_gradients(const std::vector<at::Tensor>& parameters,
                                    const ProcessGroup& group, const GradientOptions& options = {});

/// Options of DataParallel.
struct DataParallelOptions {
  std::int64_t bucket_bytes = std::int64_t{25} << 20;  ///< at least 1
  /// Allows parameters that a step does not use, by a search of the graph in each step. Parameters
  /// that no rank uses keep their gradient. Each step must use at least one parameter.
  bool find_unused_parameters = false;
  GradientTraffic traffic = GradientTraffic::kFloat32;
};

/// Averages gradients over the ranks while the backward pass runs (as c10d's Reducer does). Each
/// step is
///
///     loss = ...;                // forward
///     parallel.prepare({loss});
///     loss.backward();           // returns with the means in the gradients
///
/// A backward pass without prepare() throws LogicError, unless a NoSync is alive. One that misses a
/// parameter throws InvalidArgument with its name. After either error the object is unusable.
/// Reduces the dense gradients of parameters that required one at construction. Does nothing with
/// one process. Uses as much memory as the gradients. With modules that communicate in the backward
/// (SyncBatchNorm1d) all ranks must use the same parameters. If the group checks collectives,
/// prepare() and each bucket first wait for all ranks and compare; a step that another rank does
/// not take throws InvalidArgument from either; after one from the backward the object is unusable.
/// Not thread-safe.
class MEZZO_API DataParallel {
 public:
  /// Broadcasts rank 0's parameters and buffers. The module must outlive this object. Throws
  /// InvalidArgument as broadcast_parameters() does, and if no parameter requires a gradient.
  DataParallel(std::shared_ptr<torch::nn::Module> module, ProcessGroup group,
               DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// outputs: the roots of this step's single backward pass. The second step communicates, to order
  /// the buckets by the arrival of gradients. Throws InvalidArgument if no output requires a
  /// gradient, LogicError after a backward pass that did not finish.
  void prepare(const std::vector<at::Tensor>& outputs);

  /// While the result is alive, prepare() does nothing and backward passes accumulate locally. The
  /// first backward pass after it reduces the accumulated gradients.
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

/// Returns the options with reduce_found_inf replaced by a reduction over the group: if one rank
/// finds inf or nan, all ranks skip the step, and their scales stay equal. Each check is one
/// collective of a byte. The reduction keeps the group alive. No change with one process.
MEZZO_API amp::GradScalerOptions synchronized(amp::GradScalerOptions options,
                                              const ProcessGroup& group);

/// Broadcasts rank 0's scale and counts (ScalerState), e.g. at the start or after rank 0 has read a
/// checkpoint. For a scaler with synchronized() options. Communicates, blocks and synchronizes with
/// the device. Does nothing if all scalers are disabled. Throws InvalidArgument on every rank if
/// only some are enabled or the numbers of a rule's own values differ; IoError as the group's
/// collectives do.
MEZZO_API void synchronize(amp::GradScaler& scaler, const ProcessGroup& group);

}  // namespace mezzo::dist
