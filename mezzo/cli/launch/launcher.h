#pragma once

#include <cstdint>
#include <optional>

#include "mezzo/cli/commands/commands.h"

namespace mezzo::cli {

/// How `mezzo launch` starts its processes.
struct LaunchOptions {
  std::int64_t processes = 1;             ///< >= 1
  std::int64_t port = 0;                  ///< at which rank 0 waits for the others; 0: any free one
  std::optional<std::int64_t> threads{};  ///< of each process; nothing: its share of the cores
};

/// Runs `mezzo <words>` in several processes of this machine, which find one another by the
/// variables RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and
/// returns when all have ended. Each line that they print is prefixed with "[rank] "; only the
/// standard error of rank 0, if a terminal, is passed through for the progress bar.
///
/// SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 are passed on, SIGHUP as SIGTERM. SIGTSTP stops the
/// processes and the launcher, SIGCONT continues all. Signals that are ignored at the start stay
/// ignored, except SIGINT, SIGTERM and SIGCHLD.
///
/// If a process fails, a line on the standard error reports its rank and how it ended, and the
/// others are ended: they have eight seconds to report the lost peer and get SIGKILL after twelve.
/// A process that failed because it lost a peer is reported only if no other process fails by
/// itself within the next eight seconds; the others run on meanwhile. No process outlives this one,
/// however it ends. The processes continue if nobody reads the output. Returns 0, the exit code of
/// the reported process (128 + the signal that ended it), or kInterrupted if an interrupt ended all
/// cleanly. Throws IoError if the port is in use or a process cannot be started.
int launch(const LaunchOptions& options, const Arguments& words);

}  // namespace mezzo::cli
