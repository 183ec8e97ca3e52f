#include "mezzo/dist/rendezvous/environment.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "mezzo/core/error.h"

namespace mezzo::dist {
namespace {

constexpr std::int64_t kLargestPort = 65535;

/// The environment variables of a launcher that describe the rank of a process.
struct Launcher {
  const char* rank;
  const char* world_size;
  const char* local_rank;
};

constexpr Launcher kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK"};
constexpr Launcher kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Launcher kSlurm = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"};

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const char* name) const {
    const char* value = lookup_(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  }

  std::optional<std::int64_t> number(const char* name, std::int64_t least,
                                     std::int64_t most) const {
    const std::optional<std::string> value = text(name);
    if (!value) return std::nullopt;
    std::int64_t result = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, result);
    MEZZO_CHECK(error == std::errc() && stop == end && result >= least && result <= most,
                "dist::init: expected {} to be a whole number from {} to {}, got '{}'", name, least,
                most, *value);
    return result;
  }

 private:
  const Lookup& lookup_;
};

constexpr std::int64_t kMostProcesses = std::int64_t{1} << 24;

/// Null if no launcher has set its variables. Slurm comes last: a process that another launcher
/// starts in a batch script inherits the variables of the script.
const Launcher* find_launcher(const Variables& variables) {
  for (const Launcher* launcher : {&kTorchrun, &kOpenMpi, &kSlurm}) {
    if (variables.text(launcher->rank) || variables.text(launcher->world_size)) return launcher;
  }
  return nullptr;
}

/// The option if set, else the launcher's variable, else `otherwise`.
std::int64_t choose(std::int64_t option, const Variables& variables, const char* variable,
                    std::int64_t least, std::int64_t otherwise) {
  if (option >= 0) return option;
  if (variable == nullptr) return otherwise;
  return variables.number(variable, least, kMostProcesses).value_or(otherwise);
}

void check_place(const Placement& place, const Launcher* launcher) {
  const char* rank_name = launcher == nullptr ? "InitOptions::rank" : launcher->rank;
  const char* size_name = launcher == nullptr ? "InitOptions::world_size" : launcher->world_size;
  MEZZO_CHECK(place.world_size != 0,
              "dist::init: expected InitOptions::world_size of at least 1, got 0");
  MEZZO_CHECK(place.rank >= 0,
              "dist::init: expected a rank for one of {} processes, got none (set {})",
              place.world_size, rank_name);
  MEZZO_CHECK(place.world_size >= 1,
              "dist::init: expected the number of processes with rank {}, got none (set {})",
              place.rank, size_name);
  MEZZO_CHECK(
      place.rank < place.world_size,
      "dist::init: expected a rank ({}) below the number of processes, {} ({}), got rank {}",
      rank_name, place.world_size, size_name, place.rank);
  MEZZO_CHECK(
      place.local_rank < place.world_size,
      "dist::init: expected a local rank below the number of processes, {}, got local rank {}",
      place.world_size, place.local_rank);
}

std::string find_address(const InitOptions& options, const Variables& variables,
                         const Launcher* launcher) {
  if (!options.address.empty()) return options.address;
  if (const auto address = variables.text("MASTER_ADDR")) return *address;
  if (launcher == &kSlurm) {
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
      if (const auto list = variables.text(name)) return first_host(*list);
    }
  }
  mezzo::detail::raise<InvalidArgument>(
      "dist::init: expected the address of rank 0 in MASTER_ADDR or InitOptions::address, got "
      "none");
}

/// Port of a job step: equal for all its processes, preferably different for other jobs and steps
/// on the machine.
std::int64_t port_of_step(std::int64_t job, std::int64_t step) {
  constexpr std::int64_t kFirst = 12000;  // below the ephemeral ports, which start at 32768
  constexpr std::int64_t kCount = 20000;
  constexpr std::int64_t kStride = 7919;  // separates the steps of a job from the following jobs
  return kFirst + (job % kCount + step % kCount * kStride) % kCount;
}

std::int64_t find_port(const InitOptions& options, const Variables& variables,
                       const Launcher* launcher) {
  if (options.port >= 0) {
    MEZZO_CHECK(options.port >= 1 && options.port <= kLargestPort,
                "dist::init: expected InitOptions::port in [1, {}], got {}", kLargestPort,
                options.port);
    return options.port;
  }
  if (const auto port = variables.number("MASTER_PORT", 1, kLargestPort)) return *port;
  if (launcher == &kSlurm) {
    const auto job = variables.number("SLURM_JOB_ID", 0, INT64_MAX);
    const auto step = variables.number("SLURM_STEP_ID", 0, INT64_MAX);
    if (job) return port_of_step(*job, step.value_or(0));
  }
  mezzo::detail::raise<InvalidArgument>(
      "dist::init: expected the port of rank 0 in MASTER_PORT or InitOptions::port, got none");
}

}  // namespace

std::string first_host(std::string_view node_list) {
  const std::size_t open = node_list.find('[');
  const std::size_t comma = node_list.find(',');
  const std::string_view name = node_list.substr(0, std::min(open, comma));
  MEZZO_CHECK(!node_list.empty() && (!name.empty() || open == 0),
              "dist::init: expected a list of nodes that begins with a host, got '{}'", node_list);
  if (open == std::string_view::npos || comma < open) return std::string(name);
  const std::size_t close = node_list.find(']', open);
  const std::size_t end = node_list.find_first_of(",-]", open + 1);
  MEZZO_CHECK(close != std::string_view::npos && end > open + 1,
              "dist::init: expected a list of nodes with numbers in its brackets, got '{}'",
              node_list);
  // A name may continue after the brackets, even with more of them: "rack[1-2]node[0-7]".
  const std::string_view rest = node_list.substr(close + 1);
  std::string host = std::string(name).append(node_list.substr(open + 1, end - open - 1));
  if (!rest.empty() && rest.front() != ',') host += first_host(rest);
  return host;
}

bool checks_collectives(const InitOptions& options, const Lookup& lookup) {
  if (options.check_collectives) return *options.check_collectives;
  constexpr const char* kName = "TORCH_DISTRIBUTED_DEBUG";
  const std::optional<std::string> value = Variables(lookup).text(kName);
  if (!value) return false;
  std::string level = *value;
  for (char& letter : level) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  MEZZO_CHECK(level == "OFF" || level == "INFO" || level == "DETAIL",
              "dist::init: expected {} to be OFF, INFO or DETAIL, got '{}'", kName, *value);
  return level == "DETAIL";
}

Placement find_placement(const InitOptions& options, const Lookup& lookup) {
  const Variables variables(lookup);
  const bool all_given = options.rank >= 0 && options.world_size >= 0;
  const Launcher* launcher = all_given ? nullptr : find_launcher(variables);
  const Launcher names = launcher == nullptr ? Launcher{} : *launcher;
  Placement place;
  place.rank = choose(options.rank, variables, names.rank, 0, -1);
  place.world_size = choose(options.world_size, variables, names.world_size, 1, -1);
  place.local_rank = choose(options.local_rank, variables, names.local_rank, 0, -1);
  if (place.rank < 0 && place.world_size < 0) {
    place.rank = 0;
    place.world_size = 1;
  }
  check_place(place, launcher);
  if (place.world_size == 1) {
    place.local_rank = std::max<std::int64_t>(place.local_rank, 0);
    return place;
  }
  place.address = find_address(options, variables, launcher);
  place.port = find_port(options, variables, launcher);
  const bool own_meeting_point = !options.address.empty() || options.port >= 0;
  const bool agent_hosts =
      !own_meeting_point && variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.hosts_store = place.rank == 0 && !agent_hosts;
  if (const auto attempt = variables.text("TORCHELASTIC_RESTART_COUNT")) place.attempt = *attempt;
  return place;
}

}  // namespace mezzo::dist
