#pragma once

namespace mezzo::cli {

/// From now on SIGINT and SIGTERM are remembered instead of ending the process; a second one of the
/// same kind ends it.
void handle_interrupts();

/// From now on the process does not end where nobody reads what it writes, as behind `head`: long
/// work goes on to its checkpoint and its report.
void outlive_readers();

/// Whether such a signal has come.
bool interrupted();

}  // namespace mezzo::cli
