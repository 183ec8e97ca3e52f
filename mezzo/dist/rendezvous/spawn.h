#pragma once

#include <cstdint>
#include <functional>

#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/graph/graph.h"

namespace mezzo::dist {

/// Runs `work` in `processes` processes (1 to 1024) of this machine, joined in one group over
/// `backend` (as InitOptions::backend), and returns when all are done. Workers share `graph` and
/// all other memory of this process copy-on-write; results are not copied back. Rows by destination
/// are built first, for samplers; if workers need rows by source, build them here (Topology::csr),
/// or each worker builds its own. Workers inherit standard output and error and the state of
/// libtorch's random generators. Their number of threads is this process's divided by the number of
/// workers, at least 1.
///
/// If a worker throws, all are stopped and its exception is rethrown here with the rank as prefix:
/// same class for this library's errors, else Error. If a worker ends by a signal or by exit,
/// throws LogicError with the rank and the cause. If several throw, reports the first that failed
/// by itself; errors caused by a lost rank do not count, unless no other error follows within
/// eight seconds. The rest get SIGTERM, and SIGKILL 1.5 s later. No worker outlives this process,
/// even if a signal ends it.
///
/// Workers are forks: they have only the calling thread, and locks that other threads held stay
/// locked (stop loaders first). libtorch's operations and backward passes run in parallel in the
/// workers, whether or not they ran before. CUDA does not survive a fork: throws InvalidArgument if
/// this process has used it, even to query devices (a backward pass and torch::manual_seed() do,
/// default_device() does not); use `mezzo launch`, or use CUDA only in the workers. Throws IoError
/// if fork fails.
MEZZO_API void spawn(std::int64_t processes, const Graph& graph,
                     const std::function<void(ProcessGroup&, const Graph&)>& work,
                     Backend backend = Backend::kAutomatic);

}  // namespace mezzo::dist
