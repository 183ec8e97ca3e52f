#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "mezzo/core/export.h"
#include "mezzo/dist/group/process_group.h"

namespace mezzo::dist {

/// Returns the value of an environment variable, or null. Replaceable in tests.
using Lookup = std::function<const char*(const char*)>;

/// Rank, world size and address of a process, fully resolved.
struct Placement {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t local_rank = -1;  ///< -1: unknown, counted during the rendezvous
  std::string address = {};      ///< address of rank 0; empty for one process
  std::int64_t port = 0;
  /// Whether this process opens the port. Rank 0 does, unless torchrun's agent already has
  /// (TORCHELASTIC_USE_AGENT_STORE).
  bool hosts_store = false;
  std::string attempt = "0";  ///< torchrun's restart count; separates the keys of restarts
};

/// Resolves `options`, with defaults from the environment (see InitOptions). An empty variable
/// counts as unset. Throws InvalidArgument with the name and text of the variable or option.
MEZZO_API Placement find_placement(const InitOptions& options, const Lookup& lookup);

/// Whether collectives are checked: the option if set, else whether TORCH_DISTRIBUTED_DEBUG is
/// DETAIL (any case). Throws InvalidArgument if it is not OFF, INFO or DETAIL.
MEZZO_API bool checks_collectives(const InitOptions& options, const Lookup& lookup);

/// Returns the first host of Slurm's compressed list: "node01" for "node[01-03,7],gpu5". Throws
/// InvalidArgument if the list is empty or a bracket is not closed.
MEZZO_API std::string first_host(std::string_view node_list);

}  // namespace mezzo::dist
