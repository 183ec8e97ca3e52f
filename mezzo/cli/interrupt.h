#pragma once

namespace mezzo::cli {

/// From now on SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP end the process at once
/// with exit code 130, and no unfinished file stays behind. Unblocks SIGINT and SIGTERM. Safe
/// before the constructors of libraries have run.
void exit_at_interrupts();

/// From now on such a signal is remembered for interrupted(); a second SIGINT or SIGTERM ends the
/// process as after exit_at_interrupts().
void handle_interrupts();

/// Whether a signal was remembered.
bool interrupted();

/// From now on the process goes on when nobody reads its output, as in `mezzo ... | head`: long
/// work still writes its checkpoint and its report.
void ignore_sigpipe();

}  // namespace mezzo::cli
