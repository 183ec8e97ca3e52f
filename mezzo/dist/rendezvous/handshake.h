#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "mezzo/dist/rendezvous/environment.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace mezzo::dist::detail {

/// State of the initial handshake of the ranks. Owns everything it uses, because its thread may
/// outlive the caller.
struct Handshake {
  // Input.
  c10::intrusive_ptr<c10d::Store> store;
  Placement place;
  std::chrono::milliseconds timeout;
  std::chrono::steady_clock::time_point deadline;
  std::string agreement;
  std::string gpus;    ///< of this rank, as gpus_for_nccl() returns them
  std::string target;  ///< rank 0's address as seen by this rank

  // Output.
  std::string fault = {};    ///< error of the group; empty if none
  bool rank_failed = false;  ///< if fault: this rank is late, a duplicate, or differs from rank 0
  std::vector<std::string> hosts = {}, targets = {}, gpus_of_ranks = {};  ///< if no fault
};

/// Announces this rank and waits until rank 0 has checked that all ranks are present, with the same
/// version and agreement, or reports an error. Rethrows c10d's exception if the store is lost.
void shake_hands(Handshake& handshake);

}  // namespace mezzo::dist::detail
