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

/// The handshake of the ranks at the start. It owns all that it uses, for a thread that may be left
/// behind.
struct RollCall {
  // What this rank brings.
  c10::intrusive_ptr<c10d::Store> store;
  Placement place;
  std::chrono::milliseconds timeout;
  std::chrono::steady_clock::time_point deadline;
  std::string agreement;
  std::string target;  ///< where it finds rank 0

  // What it learns.
  std::string fault = {};    ///< what is wrong with the group; empty: nothing
  bool is_to_blame = false;  ///< then: this rank is late, differs from rank 0 or is there twice
  std::vector<std::string> hosts = {}, targets = {};  ///< by rank, where nothing is wrong
};

/// Writes down that this rank is here, and returns when rank 0 has found that all are, of one
/// version and of equal agreement, or what is wrong. Throws what c10d throws where the store has
/// gone.
void call_roll(RollCall& call);

}  // namespace mezzo::dist::detail
