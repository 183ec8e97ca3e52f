#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "mezzo/core/error.h"
#include "mezzo/dist/group/gloo.h"
#include "mezzo/dist/group/group_state.h"
#include "mezzo/dist/group/nccl.h"
#include "mezzo/dist/group/process_group.h"
#include "mezzo/dist/rendezvous/environment.h"

namespace mezzo::dist {
namespace {

using GroupState = ProcessGroup::State;

const char* name_of(Backend backend) {
  if (backend == Backend::kAutomatic) return "automatic";
  return backend == Backend::kNccl ? "NCCL" : "Gloo";
}

/// The engine for c10d's Reducer, around the existing backend.
std::shared_ptr<void> make_engine(const GroupState& group) {
  using Engine = c10d::ProcessGroup;
  auto engine = c10::make_intrusive<Engine>(group.meeting->store(), static_cast<int>(group.rank),
                                            static_cast<int>(group.world_size));
  const auto kind = group.backend == Backend::kNccl ? Engine::NCCL : Engine::GLOO;
  engine->setBackend(group.device().type(), kind, group.transport);
  engine->setDefaultBackend(kind);
  Engine* pointer = engine.get();
  return {pointer, [owner = std::move(engine)](void*) {}};
}

void connect_all(GroupState& group) {
  const auto deadline = std::chrono::steady_clock::now() + group.timeout;
  const c10::intrusive_ptr<c10d::Store>& store = group.meeting->store();
  try {
    group.transport = group.backend == Backend::kNccl
                          ? detail::make_nccl(store, group.rank, group.world_size, group.timeout)
                          : detail::make_gloo(store, group.rank, group.world_size, group.timeout,
                                              group.meeting->local_address());
  } catch (const std::exception& error) {
    const std::string reason = detail::first_line(error);
    mezzo::detail::raise<IoError>("dist::init: rank {} cannot be connected with the others: {}{}",
                                  group.rank, reason,
                                  group.meeting->report_fault("init: " + reason, deadline));
  }
  group.engine = make_engine(group);
}

/// Throws InvalidArgument as choose_backend() does, on every rank.
Backend agree_on_backend(Backend requested, GroupState& group) {
  try {
    return detail::choose_backend(requested, group.meeting->machines());
  } catch (const InvalidArgument& error) {
    // Rank 0 hosts the store: it waits here until all ranks have read the numbers of GPUs.
    group.meeting->report_fault(error.what(), std::chrono::steady_clock::now() + group.timeout);
    throw;
  }
}

/// Gloo writes to its sockets without MSG_NOSIGNAL.
void ignore_broken_connections() {
  struct sigaction current {};
  const bool known = ::sigaction(SIGPIPE, nullptr, &current) == 0;
  if (known && current.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

ProcessGroup init(const InitOptions& options) {
  MEZZO_CHECK(options.timeout.count() > 0, "dist::init: expected a timeout above 0 ms, got {} ms",
              options.timeout.count());
  const Lookup environment = [](const char* name) { return std::getenv(name); };
  const Placement place = find_placement(options, environment);
  auto state = std::make_shared<GroupState>();
  state->rank = place.rank;
  state->world_size = place.world_size;
  state->local_rank = place.local_rank;
  state->timeout = options.timeout;
  state->checks_collectives = checks_collectives(options, environment);
  if (options.backend == Backend::kNccl) detail::require_nccl();
  const std::string gpus =
      options.backend == Backend::kGloo ? std::string() : detail::gpus_for_nccl();
  if (place.world_size == 1) {
    state->backend =
        detail::choose_backend(options.backend, detail::machines_of({"this machine"}, {gpus}));
    return ProcessGroup(state);
  }
  ignore_broken_connections();
  state->meeting = std::make_unique<detail::MeetingPoint>(place, options.timeout);
  state->meeting->meet(
      fmt::format("{}\nthe backend is {}\ncollectives are {}", options.agreement,
                  name_of(options.backend), state->checks_collectives ? "checked" : "not checked"),
      gpus);
  state->local_rank = state->meeting->local_rank();
  state->local_world_size = state->meeting->local_world_size();
  state->backend = agree_on_backend(options.backend, *state);
  if (state->backend == Backend::kNccl) state->gpu = detail::use_gpu(state->local_rank);
  connect_all(*state);
  const ProcessGroup group(state);
  // The store ends with rank 0; other ranks may still need it to connect.
  group.barrier();
  return group;
}

}  // namespace mezzo::dist
