#pragma once

#include <cstdint>
#include <optional>

#include "mezzo/cli/commands.h"

namespace mezzo::cli {

/// How `mezzo launch` starts its processes.
struct LaunchOptions {
  std::int64_t processes = 1;             ///< >= 1
  std::int64_t port = 0;                  ///< at which rank 0 waits for the others; 0: any free one
  std::optional<std::int64_t> threads{};  ///< of each process; nothing: its share of the cores
};

/// Runs `mezzo <words>` in several processes of this machine, which find one another by the
/// variables RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and
/// returns when all have ended. Each line that they print comes out here behind "[rank] "; only the
/// standard error of rank 0 is left as it is where it is a terminal, for the progress bar.
///
/// SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 are passed on, SIGHUP as SIGTERM. SIGTSTP stops the
/// processes and this one, SIGCONT lets all go on. What is ignored when this starts stays so, but
/// for SIGINT, SIGTERM and SIGCHLD.
///
/// Where a process fails, a line on the standard error names its rank and how it ended, and the
/// others are ended: they have eight seconds to say what they lost, and after twelve SIGKILL comes.
/// One that failed because it lost another is named only where within eight seconds, in which the
/// others are left alone, none has failed by itself. None outlives this process, however that ends;
/// where nobody reads its output any more they go on. Returns 0, the exit code of the process that
/// is named (128 + the signal that ended it), or kInterrupted where an interrupt ended all in good
/// order. Throws IoError where the port is in use or a process cannot be started.
int launch(const LaunchOptions& options, const Arguments& words);

}  // namespace mezzo::cli
