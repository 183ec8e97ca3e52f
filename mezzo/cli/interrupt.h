#pragma once

namespace mezzo::cli {

/// From now on SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP are remembered instead of
/// ending the process; a second SIGINT or SIGTERM ends it.
void handle_interrupts();

/// From now on such a signal ends the process again; one that has come before does so at once.
void end_at_interrupts();

/// From now on the process does not end where nobody reads what it writes, as behind `head`: long
/// work goes on to its checkpoint and its report.
void outlive_readers();

/// Whether such a signal has come.
bool interrupted();

}  // namespace mezzo::cli
