#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include "mezzo/dist/group/process_group.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace mezzo::dist::detail {

/// The processes of a group on one machine, and the different GPUs that they see together.
struct Machine {
  std::string host;
  std::int64_t processes = 1;
  std::int64_t gpus = 0;
};

/// The machines of a group, in the order of their first ranks. By rank: host names, and the
/// addresses of the GPUs that the rank sees, separated by spaces.
MEZZO_API std::vector<Machine> machines_of(const std::vector<std::string>& hosts,
                                           const std::vector<std::string>& gpus);

/// The backend of a group. kAutomatic: kNccl if each machine has a GPU for each of its processes,
/// else kGloo, with a line in the log (`dispatch`). Throws InvalidArgument for kNccl with too few
/// GPUs. Queries no device: ranks with the same arguments choose the same.
MEZZO_API Backend choose_backend(Backend requested, const std::vector<Machine>& machines);

/// The addresses of the GPUs that this process sees, separated by spaces; empty if it cannot use
/// NCCL. Initializes the driver.
std::string gpus_for_nccl();

/// Throws InvalidArgument if mezzo's CUDA library is not loaded or lacks NCCL, or if the machine
/// has no GPU.
void require_nccl();

/// Creates NCCL on the current device; connects at the first collective.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout);

/// Selects the GPU with the index local_rank for the calling thread, or the only visible one
/// (launchers may show each process only its own). Returns its index. Throws InvalidArgument.
c10::DeviceIndex use_gpu(std::int64_t local_rank);

}  // namespace mezzo::dist::detail
