#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace c10d {
class ProcessGroup;  // its header is slow to compile
}

namespace mezzo::dist {

/// libtorch's c10d backend: Gloo for CPU tensors, NCCL for CUDA tensors. kAutomatic: NCCL if every
/// process has a GPU of its own, else Gloo (MEZZO_LOG=dispatch prints why); the same on all ranks.
enum class Backend : std::uint8_t { kAutomatic, kGloo, kNccl };

/// Reduction over ranks. kMean: the sum divided by the number of ranks; not for integers and bool.
/// float16 and bfloat16 are summed in float32 and rounded once. Integer sums wrap; the sum of bool
/// is "any". kMax and kMin propagate NaN; not for complex numbers.
enum class ReduceOp : std::uint8_t { kSum, kMean, kMax, kMin };

/// Rank of this process and address of the others. Defaults come from the environment: variables of
/// torchrun and `mezzo launch` (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), else Open
/// MPI's (OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK; with MASTER_ADDR and MASTER_PORT), else Slurm's
/// (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID; without MASTER_ADDR the first host of
/// SLURM_STEP_NODELIST or SLURM_JOB_NODELIST, without MASTER_PORT 12000 + (SLURM_JOB_ID +
/// 7919 SLURM_STEP_ID) modulo 20000); without any: one process. An unset local rank is counted
/// among the processes with the same host name.
struct InitOptions {
  std::int64_t rank = -1, world_size = -1, local_rank = -1;
  std::string address = {};               ///< host name or address of rank 0
  std::int64_t port = -1;                 ///< port of rank 0, at least 1; not used by one process
  Backend backend = Backend::kAutomatic;  ///< the same on all ranks
  /// For the start and for each collective; failed ranks are identified within 12 s after it.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Text that must be equal on all ranks (data set sizes, options, ...); compared at the start,
  /// together with the library version.
  std::string agreement = {};
  /// Whether each collective first compares operation, dtype and shape over the ranks, and throws
  /// InvalidArgument on all of them if they differ. The same on all ranks. Costs one exchange of
  /// 256 bytes per collective; asynchronous ones then block too, and over NCCL wait for the device.
  /// Default: whether the environment variable TORCH_DISTRIBUTED_DEBUG is DETAIL, as in torch.
  std::optional<bool> check_collectives = {};
};

/// A pending collective. wait() completes it (division, rounding, copy back): if a Work is dropped
/// without wait(), the tensor or result is incomplete.
class MEZZO_API Work {
 public:
  /// Blocks until the result is ready (over NCCL: ready for the current stream). Throws IoError as
  /// the collective would. A second call returns at once.
  void wait();
  /// Whether wait() would return at once.
  bool is_done() const;

  struct State;
  explicit Work(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;
};

/// A group of processes that train together. Copies share the group; the last one closes it. All
/// ranks must call its collectives in the same order, with tensors of equal dtype and shape on the
/// group's device type (CPU for Gloo, the GPU for NCCL; else InvalidArgument before data is sent).
/// Dense tensors of any dtype; one that is not contiguous costs a copy. Results are bitwise equal
/// on all ranks. Empty tensors send nothing. Not differentiable.
///
/// If calls differ between ranks, they get wrong numbers, hang until the time-out or abort. If the
/// group checks collectives (InitOptions::check_collectives), every rank throws InvalidArgument
/// before data is sent, with operation, dtype and shape of rank 0 and of one that differs; the
/// group stays usable. A rank with invalid arguments then notifies the others and waits for them.
/// DataParallel's steps and buckets are checked too.
///
/// Over Gloo, if a rank fails, dies or misses the time-out, the call throws IoError on every other
/// rank. The message reports unresponsive ranks, or up to three errors if all responded. Later
/// collectives throw at once: the group is unusable, and its threads and sockets stay until the
/// process ends, so that nothing waits for a dead rank. Over NCCL a call only queues work on the
/// current stream; NCCL's watchdog detects a lost rank and ends the process after the time-out
/// (TORCH_NCCL_BLOCKING_WAIT=1: wait() blocks and throws instead). Not thread-safe.
class MEZZO_API ProcessGroup {
 public:
  /// A group of one process: collectives return at once.
  ProcessGroup();

  std::int64_t rank() const;  ///< in [0, world_size())
  std::int64_t world_size() const;
  std::int64_t local_rank() const;        ///< index among the processes of this machine
  std::int64_t local_world_size() const;  ///< number of processes with this host name
  /// Device of the tensors that collectives take. Over NCCL the GPU with the index local_rank, or
  /// the only visible one; with one process the current GPU, without an index. Over Gloo the CPU:
  /// the group then selects no GPU, and a program that computes on one, which several processes may
  /// share, moves tensors to the CPU and back itself.
  c10::Device device() const;
  Backend backend() const;                    ///< never kAutomatic
  std::chrono::milliseconds timeout() const;  ///< InitOptions::timeout, for each collective

  /// Reduces in place. Communicates and blocks; kMax and kMin of floating point numbers send one
  /// more byte per element (a NaN mask).
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  /// Asynchronous all_reduce(). Do not touch the tensor before Work::wait().
  [[nodiscard]] Work all_reduce_async(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  /// Copies root's tensor to all ranks in place, bitwise.
  void broadcast(const at::Tensor& tensor, std::int64_t root = 0) const;
  /// Asynchronous broadcast(). Do not touch the tensor before Work::wait().
  [[nodiscard]] Work broadcast_async(const at::Tensor& tensor, std::int64_t root = 0) const;
  /// Returns the tensors of all ranks: [world_size, ...]. Allocates.
  at::Tensor all_gather(const at::Tensor& tensor) const;
  /// Asynchronous all_gather() into `result` ([world_size, ...], same dtype and device, no shared
  /// memory; else InvalidArgument). Do not touch either tensor before Work::wait().
  [[nodiscard]] Work all_gather_async(const at::Tensor& result, const at::Tensor& tensor) const;
  /// tensor: [world_size * n, ...], not modified. Returns rows [rank * n, (rank + 1) * n) of the
  /// reduced tensor, with all_reduce's rounding. Over Gloo it costs an all_reduce and a copy.
  /// NCCL's own reduce-scatter costs half as much; its float sums may be in another order than
  /// all_reduce's.
  at::Tensor reduce_scatter(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  /// Asynchronous reduce_scatter() into `result` ([n, ...], as for all_gather_async).
  [[nodiscard]] Work reduce_scatter_async(const at::Tensor& result, const at::Tensor& tensor,
                                          ReduceOp op = ReduceOp::kSum) const;
  /// tensor: [n, ...]. Splits its rows by `counts` ([world_size], sum n), sends part r to rank r,
  /// and returns the received rows in rank order. Only the number of rows may differ between ranks.
  /// Allocates.
  at::Tensor all_to_all(const at::Tensor& tensor, const std::vector<std::int64_t>& counts) const;
  /// Blocks until all ranks have called it.
  void barrier() const;
  /// Asynchronous barrier().
  [[nodiscard]] Work barrier_async() const;
  /// Reports that this rank fails. Over Gloo, collectives of other ranks, pending or started while
  /// the store is alive (about three seconds if rank 0 hosts it), throw an IoError with this rank
  /// and the first line of the reason; later ones here throw too. Returns when all ranks are
  /// notified, after some seconds at most. Does nothing with one process or if the group has
  /// failed. Not a collective.
  void give_up(const std::string& reason) const noexcept;
  /// Reduces a number over the ranks in float64. Synchronizes.
  double all_reduce(double value, ReduceOp op) const;
  /// Returns the ranks whose `text` differs from rank 0's, ascending; the same result on all ranks.
  /// Two broadcasts and a gather; synchronizes.
  std::vector<std::int64_t> ranks_that_differ(const std::string& text) const;

  /// For DataParallel: points to a c10d::ProcessGroup (use intrusive_ptr::reclaim_copy); null for
  /// one process.
  const std::shared_ptr<void>& engine() const;

  struct State;
  explicit ProcessGroup(std::shared_ptr<State> state);
  /// For internal use.
  const std::shared_ptr<State>& state() const;

 private:
  std::shared_ptr<State> state_;
};

/// Joins the processes; blocks until all have joined. Throws InvalidArgument for missing or
/// contradictory settings (with the variable), for a backend that this build or machine lacks, and
/// for kNccl if a machine has fewer GPUs than processes (on every rank); IoError if ranks miss the
/// time-out (with those ranks), the port is in use, rank 0 is unreachable, or ranks differ in
/// version, number of processes, `agreement`, `backend` or check_collectives (with those ranks, on
/// every rank). Initializes the CUDA driver if there is one, unless the backend is kGloo. With
/// several processes, makes device() the current GPU (NCCL) and ignores SIGPIPE if it has its
/// default action: a broken connection is then an error and does not end the process.
MEZZO_API ProcessGroup init(const InitOptions& options = {});

/// An accuracy as two counts, which can be summed over ranks.
struct Correct {
  std::int64_t correct = 0;
  std::int64_t count = 0;

  /// NaN if count is 0.
  double share() const {
    if (count == 0) return std::numeric_limits<double>::quiet_NaN();
    return static_cast<double>(correct) / static_cast<double>(count);
  }
};

/// Sums the counts over all ranks; exact below 2^53. Communicates and blocks.
inline Correct sum_over_ranks(Correct own, const ProcessGroup& group) {
  const double correct = group.all_reduce(static_cast<double>(own.correct), ReduceOp::kSum);
  const double count = group.all_reduce(static_cast<double>(own.count), ReduceOp::kSum);
  return {static_cast<std::int64_t>(correct), static_cast<std::int64_t>(count)};
}

/// Mean over all ranks of `count` values with the sum `sum` on this rank, e.g. a loss over nodes;
/// NaN if all counts are 0. Communicates and blocks.
inline double mean_over_ranks(double sum, std::int64_t count, const ProcessGroup& group) {
  const double total = group.all_reduce(sum, ReduceOp::kSum);
  return total / group.all_reduce(static_cast<double>(count), ReduceOp::kSum);
}

}  // namespace mezzo::dist
