#pragma once

namespace mezzo::cli {

/// Limits how long idle OpenMP threads spin before they sleep: beside another busy process, threads
/// that spin without a limit make training 5 to 17 times slower. libgomp reads the limit from the
/// environment while it is loaded, so the program restarts itself once with GOMP_SPINCOUNT set; the
/// process, its arguments and its open files stay the same. Until exit_at_interrupts(), SIGINT and
/// SIGTERM are then blocked. Does nothing if OMP_WAIT_POLICY or GOMP_SPINCOUNT is set, or if the
/// restart fails. Safe before the constructors of libraries have run.
void limit_spinning(char** arguments, char** environment);

}  // namespace mezzo::cli
