#include "mezzo/cli/commands/commands.h"
#include "mezzo/cli/launch/launcher.h"
#include "mezzo/cli/options/options.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/error.h"

namespace mezzo::cli {
namespace {

constexpr std::int64_t kMostProcesses = 1024;
constexpr std::int64_t kMostThreads = 4096;
constexpr std::int64_t kLastPort = 65535;

void check(const LaunchOptions& options, const std::optional<std::int64_t>& processes,
           const std::optional<std::int64_t>& port) {
  MEZZO_CHECK(processes, "-n: expected the number of processes");
  MEZZO_CHECK(*processes >= 1 && *processes <= kMostProcesses, "-n: expected 1 to {}, got {}",
              kMostProcesses, *processes);
  MEZZO_CHECK(!port || (*port >= 1 && *port <= kLastPort), "--port: expected 1 to {}, got {}",
              kLastPort, *port);
  MEZZO_CHECK(!options.threads || (*options.threads >= 1 && *options.threads <= kMostThreads),
              "--threads-per-process: expected 1 to {}, got {}", kMostThreads, *options.threads);
}

}  // namespace

int launch_command(const Arguments& arguments) {
  LaunchOptions options;
  std::optional<std::int64_t> processes, port;
  OptionParser app(
      "Runs `mezzo train` in several processes of this machine, which train one model together",
      "mezzo launch");
  OptionGroup(app, "Processes")
      .number("-n", processes, "Processes (required)")
      .number("--port", port, "Port of this machine at which they meet (default: any free one)")
      .number("--threads-per-process", options.threads,
              "CPU threads of each (default: OMP_NUM_THREADS, else an equal share of the cores)");
  app.keep_rest();
  app.set_footer(
      "The rest of the line is `train` and its options, of each process: mezzo launch -n 2 train "
      "--dataset ...");
  if (!parse_arguments(app, arguments)) return kSuccess;

  check(options, processes, port);
  const Arguments words = app.rest();
  MEZZO_CHECK(!words.empty(), "launch: expected a command after its options: train");
  MEZZO_CHECK(words.front() == "train",
              "launch: '{}' cannot be run in several processes: expected train", words.front());
  options.processes = *processes;
  options.port = port.value_or(0);
  return launch(options, words);
}

}  // namespace mezzo::cli
