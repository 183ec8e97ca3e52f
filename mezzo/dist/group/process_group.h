#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace c10d {
class ProcessGroup;  // its header costs seconds
}

namespace mezzo::dist {

/// Who moves the numbers: Gloo for tensors on CPUs, NCCL for those on GPUs (libtorch's c10d).
enum class Backend : std::uint8_t { kAutomatic, kGloo, kNccl };

/// How the numbers of the ranks become one. kMean: the sum divided by the number of ranks; not for
/// integers and bool. float16 and bfloat16 are summed in float32 and rounded once. Sums of integers
/// wrap; the sum of bool is "any". kMax and kMin: NaN wins; not for complex numbers.
enum class ReduceOp : std::uint8_t { kSum, kMean, kMax, kMin };

/// Where a process stands and how it finds the others. What is left at its default comes from the
/// environment: torchrun's and `mezzo launch`'s variables (RANK, WORLD_SIZE, LOCAL_RANK,
/// MASTER_ADDR, MASTER_PORT), else Open MPI's (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK; with
/// MASTER_ADDR and MASTER_PORT), else Slurm's (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID; without
/// MASTER_ADDR the first host of SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, without MASTER_PORT
/// 12000 + (SLURM_JOB_ID + 7919 SLURM_STEP_ID) modulo 20000); without any: one process. A local
/// rank that nobody gives is counted among the processes of the same host name.
struct InitOptions {
  std::int64_t rank = -1, world_size = -1, local_rank = -1;
  std::string address = {};  ///< host name or number of rank 0
  std::int64_t port = -1;    ///< at which rank 0 waits, from 1; not used by one process
  Backend backend = Backend::kAutomatic;  ///< kNccl if default_device() is a GPU
  /// Of the start and of each collective; who fails then is found out within twelve seconds more.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// What all ranks have to agree on (a data set's sizes, options, ...): compared at the start,
  /// beside the version of the library.
  std::string agreement = {};
  /// Whether every collective first compares what the ranks are about to do (operation, dtype,
  /// shape), and throws InvalidArgument on all of them where it differs. The same on all ranks.
  /// Costs an exchange of 256 bytes a collective, for which asynchronous ones block, too, and over
  /// NCCL wait for the device. Default: whether the environment variable TORCH_DISTRIBUTED_DEBUG is
  /// DETAIL, as for torch.
  std::optional<bool> check_collectives = {};
};

/// A collective under way. The last part of the work (division, rounding, copying back) is done by
/// wait(): a Work that is dropped before leaves the tensor, or the result, half done.
class MEZZO_API Work {
 public:
  /// Blocks until the result is there (over NCCL: until it is there for the current stream). Throws
  /// IoError as the collective itself would. Returns at once the second time.
  void wait();
  /// Whether wait() would return at once.
  bool is_done() const;

  struct State;
  explicit Work(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

/// The processes that train together. A light handle: copies stand for the same group, which closes
/// with the last one. Every member below that names a collective has to be called by all ranks, in
/// the same order, with tensors of the same dtype and shape, on the group's kind of device (CPU for
/// Gloo, the GPU for NCCL; else InvalidArgument before anything is sent). Dense tensors of any
/// dtype, contiguous or not (one that is not costs a copy); results are the same bits on all ranks.
/// Tensors without elements send nothing. Gradients do not flow through.
///
/// Ranks whose calls differ get wrong numbers, hang until the time-out or abort. A group that
/// checks its collectives (InitOptions::check_collectives) throws InvalidArgument on every rank
/// instead, before anything is sent, which names operation, dtype and shape of rank 0 and of one
/// that differs; it can be used on. A rank that refuses its own arguments tells the others, and
/// waits for them. DataParallel's steps and buckets are checked as well.
///
/// Over Gloo a rank that fails, dies or does not come within the time-out makes the call throw
/// IoError on every other, which names the ranks that give no word, or where all do, what the
/// others (three at most) failed in. Every later collective throws at once; the group is of no more
/// use, and its threads and sockets stay until the process ends, so that nothing waits for the
/// dead. Over NCCL a call only queues work on the current stream; a lost rank is found by NCCL's
/// watchdog, which ends the process after the time-out (TORCH_NCCL_BLOCKING_WAIT=1: wait() blocks
/// and throws instead). One thread at a time.
class MEZZO_API ProcessGroup {
 public:
  /// One process: collectives return at once.
  ProcessGroup();

  std::int64_t rank() const;  ///< in [0, world_size())
  std::int64_t world_size() const;
  std::int64_t local_rank() const;        ///< among the processes of this machine
  std::int64_t local_world_size() const;  ///< processes of this machine, those of one host name
  /// Of the tensors it moves. Over NCCL the GPU numbered by the local rank, or the only one that is
  /// visible; one process has the current one, without a number.
  c10::Device device() const;
  Backend backend() const;                    ///< never kAutomatic
  std::chrono::milliseconds timeout() const;  ///< of every collective, InitOptions::timeout

  /// In place. Communicates and blocks; kMax and kMin of floating point numbers send one byte more
  /// for each (where NaN is).
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  /// The same, under way at once. The tensor must not be touched before Work::wait().
  [[nodiscard]] Work all_reduce_async(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  /// Root's numbers, in place, bit by bit.
  void broadcast(const at::Tensor& tensor, std::int64_t root = 0) const;
  /// The same, under way at once. The tensor must not be touched before Work::wait().
  [[nodiscard]] Work broadcast_async(const at::Tensor& tensor, std::int64_t root = 0) const;
  /// [world_size, ...]: the tensors of all ranks. Allocates.
  at::Tensor all_gather(const at::Tensor& tensor) const;
  /// The same into `result` ([world_size, ...] of the tensor's dtype and device, memory of its own;
  /// else InvalidArgument), under way at once. Neither must be touched before Work::wait().
  [[nodiscard]] Work all_gather_async(const at::Tensor& result, const at::Tensor& tensor) const;
  /// tensor: [world_size * n, ...], left as it is. Returns rows [rank * n, (rank + 1) * n) of the
  /// reduced one, whose sums are rounded as all_reduce's. Over Gloo it costs as much as all_reduce,
  /// and a copy; over NCCL, by its own reduce-scatter, half as much, and float sums may differ from
  /// all_reduce's in their order.
  at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  /// The same into `result` ([n, ...], as for all_gather_async), under way at once.
  [[nodiscard]] Work reduce_scatter_async(const at::Tensor& result, const at::Tensor& tensor,
                                          ReduceOp op = ReduceOp::kSum) const;
  /// tensor: [n, ...]. Sends its rows in parts of `counts` ([world_size] that add up to n), part r
  /// to rank r, and returns those that were sent here, by rank. Numbers of rows may differ between
  /// the ranks, the rest of the shape not. Allocates.
  at::Tensor all_to_all(const at::Tensor& tensor, const std::vector<std::int64_t>& counts) const;
  /// Returns when all ranks are here.
  void barrier() const;
  /// Work::wait() returns when all ranks have called this.
  [[nodiscard]] Work barrier_async() const;
  /// For a rank that goes no further: over Gloo the collectives in which the others wait, or come
  /// to wait while the store lives (where rank 0 holds it, some three seconds), throw an IoError
  /// that names this rank and the reason (its first line), and so do later ones here. Returns when
  /// all have heard, after some seconds at most; nothing for one process and in a group that has
  /// failed. No collective.
  void give_up(const std::string& reason) const noexcept;
  /// A number reduced over the ranks, in float64. Synchronises.
  double all_reduce(double value, ReduceOp op) const;
  /// The ranks at which `text` is not rank 0's, ascending; the same answer on all ranks. Two
  /// broadcasts and a gather; synchronises.
  std::vector<std::int64_t> ranks_that_differ(const std::string& text) const;

  /// c10d's own for DataParallel: points to a c10d::ProcessGroup, of which an intrusive_ptr may be
  /// had by reclaim_copy; null for one process.
  const std::shared_ptr<void>& engine() const;

  struct State;
  explicit ProcessGroup(std::shared_ptr<State> state);
  /// For the library's own parts.
  const std::shared_ptr<State>& state() const;

 private:
  std::shared_ptr<State> state_;
};

/// Joins the processes. Blocks until all are there. Throws InvalidArgument for missing or
/// contradictory settings (naming the variable) and for a backend that this build or machine lacks,
/// IoError if the others do not come within the time-out (naming those ranks), the port is in
/// use, rank 0 is not reached, or ranks disagree about version, number of processes, `agreement` or
/// check_collectives (naming them, on every rank). With several processes device() becomes the
/// current GPU over NCCL, and SIGPIPE is ignored from then on where nobody has set it otherwise: a
/// connection to a dead rank is an error, not the end of this one.
MEZZO_API ProcessGroup init(const InitOptions& options = {});

}  // namespace mezzo::dist
