#pragma once

#include <cstdint>
#include <functional>

#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/graph/graph.h"

namespace mezzo::dist {

/// Runs `work` in `processes` processes of this machine (1 to 1024), which have joined to one
/// group, and returns when all are done. They see `graph`, and everything else of this process, as
/// it is: structure and frames are in memory once, whatever the number of processes (pages that a
/// worker writes to become its own; nothing comes back). So that samplers find them there, rows by
/// destination are built first; ask for rows by source here (Topology::csr) where workers need
/// those, or each builds its own. Standard output and errors are shared.
/// libtorch's random generators begin in every worker as they stand here; the number of threads
/// begins as this process's divided by the workers, at least 1.
///
/// A worker that throws ends all of them; its exception is thrown here with the rank in front, of
/// the same kind where it is one of this library's, else as Error. So is a worker that ends by a
/// signal or by exit (LogicError that names the rank and how it ended). Where several throw, it is
/// the first that failed by itself: those that fail because they lost another one do not count,
/// unless in eight seconds no other fails. The rest get SIGTERM, 1.5 s later SIGKILL. Nothing is
/// left running, also where a signal ends this process.
///
/// The workers are forks of this process: threads other than the caller's are not there (nor what
/// they may be holding: stop loaders first), but libtorch's operations and backwards run in
/// parallel again, whether or not they did here before. CUDA does not survive a fork: throws
/// InvalidArgument if this process has used it, if only to ask for devices (default_device() and
/// a backward do); then use `mezzo launch`, or ask for devices in the workers alone. IoError if
/// the system has no more processes.
MEZZO_API void spawn(std::int64_t processes, const Graph& graph,
                     const std::function<void(ProcessGroup&, const Graph&)>& work);

}  // namespace mezzo::dist
