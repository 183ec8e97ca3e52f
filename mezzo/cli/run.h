#pragma once

#include <string>
#include <vector>

namespace mezzo::cli {

/// What the process returns.
enum ExitCode : int {
  kSuccess = 0,
  kUsageError = 2,
  kIoError = 3,
  kDiverged = 4,
  kInternalError = 70,
  /// Only from a process of `mezzo launch` to it: this one failed because another one did.
  kFailedWithAnother = 75,
  kInterrupted = 130,  ///< as shells have it for an interrupt
};

/// Set in the processes of `mezzo launch`.
inline constexpr const char* kLaunchedVariable = "MEZZO_LAUNCHED";

/// Runs `mezzo <arguments>`: dispatches to a command, and turns every exception into one line
/// "mezzo: ..." on the standard error and an exit code. Installs a handler for libtorch's warnings:
/// those of this library are printed, the others are seen with MEZZO_LOG=libtorch. What it runs is
/// in an amp::Float32Reductions. A word in MEZZO_LOG that is no topic is wrong usage.
int run(const std::vector<std::string>& arguments);

}  // namespace mezzo::cli
