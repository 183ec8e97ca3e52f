#include "mezzo/dist/group/group_state.h"

#include <algorithm>
#include <exception>

#include "mezzo/core/error.h"
#include "mezzo/dist/rendezvous/failure.h"

namespace mezzo::dist {
namespace {

using Clock = std::chrono::steady_clock;

/// How often a waiting rank checks whether another one has failed.
constexpr std::chrono::milliseconds kGlance(1000);
/// Extra time, so that Gloo's own, more precise time-out comes first.
constexpr std::chrono::milliseconds kGrace(1000);

/// Whether the work is done within `time`. Rethrows its error.
bool is_done_within(c10d::Work& work, std::chrono::milliseconds time) {
  try {
    work.wait(time);
  } catch (const std::exception&) {
    if (!work.isCompleted()) return false;
    work.wait();  // throws again, unless it finished just after the time limit
  }
  return true;
}

}  // namespace

ProcessGroup::State::~State() {
  if (!transport) return;
  forget_finished();
  // c10d's destructor waits for pending work, perhaps for a rank that never comes.
  if (!under_way_.empty()) abandon();
}

c10::Device ProcessGroup::State::device() const {
  if (backend != Backend::kNccl) return c10::Device(c10::kCPU);
  return c10::Device(c10::kCUDA, gpu);
}

WorkPointer ProcessGroup::State::start(
    const char* operation, const std::function<WorkPointer(c10d::Backend&)>& collective) {
  {
    const std::lock_guard lock(failing_);
    if (!failure_.empty()) {
      mezzo::detail::raise<IoError>("dist::{}: the group has failed before: {}", operation,
                                    failure_);
    }
  }
  try {
    add(collective(*transport));
  } catch (const std::exception& error) {
    fail(operation, error, Clock::now() + timeout);
  }
  return under_way_.back();
}

void ProcessGroup::State::add(const WorkPointer& work) {
  forget_finished();
  under_way_.push_back(work);
}

void ProcessGroup::State::finish(const char* operation, const WorkPointer& work) {
  const auto deadline = Clock::now() + timeout + kGrace;
  try {
    if (backend == Backend::kNccl) {
      work->wait();
      return;
    }
    while (!is_done_within(*work, kGlance)) {
      const std::optional<std::string> fault = meeting->fault_of_another();
      if (fault) mezzo::detail::raise<IoError>("{}{}", detail::kGivenUp, *fault);
      if (Clock::now() > deadline) {
        mezzo::detail::raise<IoError>("not done within {} ms", timeout.count());
      }
    }
  } catch (const std::exception& error) {
    fail(operation, error, deadline);
  }
  forget_finished();
}

void ProcessGroup::State::fail(const char* operation, const std::exception& error,
                               Clock::time_point deadline) {
  const std::lock_guard lock(failing_);
  // After an earlier failure this one is only a consequence.
  if (failure_.empty()) {
    if (detail::comes_from_another(error)) detail::note_failure_of_another();
    const std::string reason = detail::first_line(error);
    abandon();
    const std::string known =
        meeting->report_fault(fmt::format("{}: {}", operation, reason), deadline);
    failure_ = fmt::format("{} of rank {} of {}: {}{}", operation, rank, world_size, reason, known);
  }
  mezzo::detail::raise<IoError>("dist::{}", failure_);
}

void ProcessGroup::State::give_up(const std::string& reason) noexcept {
  try {
    const std::lock_guard lock(failing_);
    if (!failure_.empty()) return;
    abandon();
    const std::string line = reason.substr(0, reason.find('\n'));
    failure_ = fmt::format("rank {} of {} gave up: {}", rank, world_size, line);
    meeting->report_fault(line, Clock::now());
  } catch (const std::exception&) {
    // Out of memory: the others will detect that this rank is missing.
  }
}

void ProcessGroup::State::forget_finished() {
  under_way_.erase(std::remove_if(under_way_.begin(), under_way_.end(),
                                  [](const WorkPointer& work) { return work->isCompleted(); }),
                   under_way_.end());
}

/// Keeps c10d's object alive until the process ends.
void ProcessGroup::State::abandon() {
  c10::intrusive_ptr<c10d::Backend> copy = transport;
  static_cast<void>(copy.release());
}

}  // namespace mezzo::dist
