#pragma once

#include <string>
#include <vector>

namespace mezzo::cli {

/// What the process returns. Of a mezzo::Error: its mezzo_status.
enum ExitCode : int {
  kSuccess = 0,
  kIoError = 3,
  kInternalError = 70,
  /// Only from a process of `mezzo launch`: it failed because another one did.
  kFailedWithAnother = 75,
  kInterrupted = 130,  ///< as in shells
};

/// Set in the processes of `mezzo launch`.
inline constexpr const char* kLaunchedVariable = "MEZZO_LAUNCHED";

/// Runs `mezzo <arguments>`: dispatches to a command, and turns every exception into one line
/// "mezzo: ..." on the standard error and an exit code. Prints warnings of this library; libtorch's
/// warnings only with MEZZO_LOG=libtorch. Commands run under amp::Float32Reductions. An unknown
/// topic in MEZZO_LOG is a usage error.
int run(const std::vector<std::string>& arguments);

}  // namespace mezzo::cli
