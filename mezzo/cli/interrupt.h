#pragma once

namespace mezzo::cli {

/// Makes SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP remove an unfinished file and
/// end the process at once with exit code 130. Unblocks SIGINT and SIGTERM. Safe before the
/// constructors of libraries have run.
void exit_at_interrupts();

/// Makes the first such signal set interrupted(); a second SIGINT or SIGTERM ends the process as
/// after exit_at_interrupts().
void handle_interrupts();

/// Whether a signal came after handle_interrupts().
bool interrupted();

/// Ignores SIGPIPE, so that long work still writes its checkpoint and report when its output is
/// closed, as in `mezzo ... | head`.
void ignore_sigpipe();

}  // namespace mezzo::cli
