#pragma once

namespace mezzo::cli {

/// From now on SIGINT and SIGTERM are remembered instead of ending the process; a second one of the
/// same kind ends it.
void handle_interrupts();

/// Whether such a signal has come.
bool interrupted();

}  // namespace mezzo::cli
