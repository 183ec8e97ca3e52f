#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"

namespace mezzo::dist {

/// Gives a variable of the environment, or null. Tests put in a table of their own.
using Lookup = std::function<const char*(const char*)>;

/// Where a process stands, all settings resolved.
struct Placement {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = -1;  ///< -1: nobody said; counted when the processes meet
  std::string address = {};      ///< of rank 0; empty for one process
  std::int64_t port = 0;
  /// Whether this process opens the port: rank 0 does, except under a torchrun whose agent has it
  /// open already (TORCHELASTIC_USE_AGENT_STORE).
  bool hosts_store = false;
  std::string attempt = "0";  ///< torchrun's count of restarts: keeps their keys apart
};

/// What `options` say, and what they leave open from the environment (see InitOptions). A variable
/// that is set to nothing counts as not set. Throws InvalidArgument that names the variable or
/// option and its text.
MEZZO_API Placement find_placement(const InitOptions& options, const Lookup& lookup);

/// Whether collectives are checked: as the options say, else where TORCH_DISTRIBUTED_DEBUG is
/// DETAIL (small letters will do). Throws InvalidArgument if it is none of OFF, INFO and DETAIL.
MEZZO_API bool checks_collectives(const InitOptions& options, const Lookup& lookup);

/// The first host of Slurm's compressed list: "node[01-03,7],gpu5" gives "node01". Throws
/// InvalidArgument if the list is empty or a bracket stays open.
MEZZO_API std::string first_host(std::string_view node_list);

}  // namespace mezzo::dist
