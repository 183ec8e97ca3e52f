#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "fiber.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace mezzo::kernels::cuda {
namespace emulator {
namespace {

constexpr unsigned kLanes = 32;
constexpr unsigned kMaxThreads = 1024;

enum class State { kReady, kAtBlockBarrier, kAtWarpBarrier, kAtShuffle, kAtBallot, kReturned };

const char* name_of(State state) {
  switch (state) {
    case State::kReady:
      return "runs";
    case State::kAtBlockBarrier:
      return "waits at a barrier of the block";
    case State::kAtWarpBarrier:
      return "waits at a barrier of the warp";
    case State::kAtShuffle:
      return "waits at a shuffle";
    case State::kAtBallot:
      return "waits at a vote";
    case State::kReturned:
      return "has returned";
  }
  return "";
}

struct Thread {
  Fiber fiber;
  uint3 index;
  State state = State::kReturned;
  Place place;
  unsigned mask = 0;
  unsigned source = 0;      // the lane to read from
  std::uint64_t value = 0;  // the thread's input, then its result
};

bool same_place(const Place& a, const Place& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         std::strcmp(a.file_name(), b.file_name()) == 0;
}

std::string described(unsigned number, const Thread& thread) {
  std::string text = "thread " + std::to_string(number) + " " + name_of(thread.state);
  if (thread.state != State::kReturned && thread.state != State::kReady) {
    const std::string file = thread.place.file_name();
    text +=
        " (" + file.substr(file.rfind('/') + 1) + ":" + std::to_string(thread.place.line()) + ")";
  }
  return text;
}

/// Runs the blocks of one grid.
class Machine {
 public:
  void run(const char* kernel_name, dim3 grid, dim3 block, const std::function<void()>& body);
  void set_order(EmulatedOrder order) { order_ = order; }
  void wait(State state, unsigned mask, Place place);
  Thread& running() { return threads_[running_]; }
  unsigned running_lane() const { return running_ % kLanes; }

 private:
  static void run_thread(void* machine);
  [[noreturn]] void fail(const std::string& what) const;
  std::vector<unsigned> ordered(unsigned count);
  void run_block();
  void run_warp(unsigned begin, unsigned end);
  bool exchange(unsigned begin, unsigned end);
  bool meet(unsigned begin, unsigned end, unsigned mask, const Thread& first);
  bool open_block_barrier();
  void resume(unsigned number);

  std::vector<Thread> threads_;
  unsigned count_ = 0;
  unsigned running_ = 0;
  const std::function<void()>* body_ = nullptr;
  const char* kernel_name_ = "";
  EmulatedOrder order_ = EmulatedOrder::kForward;
  std::uint32_t random_ = 1;
};

Machine& machine() {
  static Machine instance;
  return instance;
}

void Machine::fail(const std::string& what) const {
  throw std::logic_error(std::string(kernel_name_) + ", block (" + std::to_string(blockIdx.x) +
                         ", " + std::to_string(blockIdx.y) + ", " + std::to_string(blockIdx.z) +
                         "): " + what);
}

std::vector<unsigned> Machine::ordered(unsigned count) {
  std::vector<unsigned> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0U);
  if (order_ == EmulatedOrder::kReverse) std::reverse(numbers.begin(), numbers.end());
  if (order_ == EmulatedOrder::kShuffled) {
    for (unsigned i = count; i > 1; --i) {
      random_ = random_ * 1664525 + 1013904223;
      std::swap(numbers[i - 1], numbers[(random_ >> 8) % i]);
    }
  }
  return numbers;
}

void Machine::run(const char* kernel_name, dim3 grid, dim3 block,
                  const std::function<void()>& body) {
  kernel_name_ = kernel_name;
  blockIdx = {};
  const std::uint64_t count = std::uint64_t{block.x} * block.y * block.z;
  if (count == 0 || count > kMaxThreads || block.z > 64) fail("a block that CUDA does not take");
  if (grid.x > 0x7FFFFFFF || grid.y > 65535 || grid.z > 65535) {
    fail("a grid that CUDA does not take");
  }
  body_ = &body;
  blockDim = block;
  gridDim = grid;
  count_ = static_cast<unsigned>(count);
  if (threads_.size() < count_) threads_.resize(count_);
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].index = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
  }
  for (const unsigned z : ordered(grid.z)) {
    for (const unsigned y : ordered(grid.y)) {
      for (const unsigned x : ordered(grid.x)) {
        blockIdx = {x, y, z};
        run_block();
      }
    }
  }
}

void Machine::run_thread(void* self) {
  auto& machine = *static_cast<Machine*>(self);
  (*machine.body_)();
  machine.wait(State::kReturned, 0, Place());
}

void Machine::run_block() {
  for (unsigned i = 0; i < count_; ++i) {
    threads_[i].fiber.start(run_thread, this);
    threads_[i].state = State::kReady;
  }
  const unsigned num_warps = (count_ + kLanes - 1) / kLanes;
  do {
    for (const unsigned warp : ordered(num_warps)) {
      run_warp(warp * kLanes, std::min(count_, (warp + 1) * kLanes));
    }
  } while (open_block_barrier());
}

void Machine::resume(unsigned number) {
  running_ = number;
  threadIdx = threads_[number].index;
  threads_[number].fiber.resume();
}

/// Runs until each thread waits at a block barrier or has returned.
void Machine::run_warp(unsigned begin, unsigned end) {
  do {
    for (const unsigned lane : ordered(end - begin)) {
      if (threads_[begin + lane].state == State::kReady) resume(begin + lane);
    }
  } while (exchange(begin, end));
}

/// Resumes the lanes whose partners have all arrived; false if no lane waits for others.
bool Machine::exchange(unsigned begin, unsigned end) {
  const Thread* stuck = nullptr;
  bool progress = false;
  for (unsigned i = begin; i < end; ++i) {
    Thread& thread = threads_[i];
    const bool waits = thread.state == State::kAtWarpBarrier || thread.state == State::kAtShuffle ||
                       thread.state == State::kAtBallot;
    if (!waits) continue;
    if ((thread.mask >> (i - begin) & 1) == 0) {
      fail(described(i, thread) + ", in a mask that does not name it");
    }
    if (meet(begin, end, thread.mask, thread)) {
      progress = true;
    } else if (stuck == nullptr) {
      stuck = &thread;
    }
  }
  if (stuck == nullptr || progress) return progress;
  std::string all;
  for (unsigned i = begin; i < end; ++i) {
    if (&threads_[i] == stuck || i == begin || threads_[i].state != threads_[i - 1].state ||
        !same_place(threads_[i].place, threads_[i - 1].place)) {
      all += (all.empty() ? "" : ", ") + described(i, threads_[i]);
    }
  }
  fail("only part of the lanes named in a mask come: " + all);
}

/// Whether all lanes of the mask have reached the operation of `first`; if so, exchanges their
/// values and resumes them.
bool Machine::meet(unsigned begin, unsigned end, unsigned mask, const Thread& first) {
  const State state = first.state;
  const Place place = first.place;
  unsigned votes = 0;
  std::uint64_t values[kLanes] = {};
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const bool exists = begin + lane < end;
    if (!exists || threads_[begin + lane].state == State::kReturned) {
      if (state == State::kAtWarpBarrier) continue;
      return false;
    }
    const Thread& thread = threads_[begin + lane];
    if (thread.state != state || thread.mask != mask || !same_place(thread.place, place)) {
      return false;
    }
    values[lane] = thread.value;
    votes |= static_cast<unsigned>(thread.value & 1) << lane;
  }
  for (unsigned lane = 0; lane < kLanes && begin + lane < end; ++lane) {
    Thread& thread = threads_[begin + lane];
    if ((mask >> lane & 1) == 0 || thread.state == State::kReturned) continue;
    if (state == State::kAtBallot) thread.value = votes;
    if (state == State::kAtShuffle) {
      if ((mask >> thread.source & 1) == 0) {
        fail(described(begin + lane, thread) + " and reads lane " + std::to_string(thread.source) +
             ", which takes no part");
      }
      thread.value = values[thread.source];
    }
    thread.state = State::kReady;
  }
  return true;
}

/// Resumes the block after a barrier; false if all its threads have returned. Every thread has
/// returned or is at a barrier; a returned one counts as arrived.
bool Machine::open_block_barrier() {
  const Thread* first = nullptr;
  for (unsigned i = 0; i < count_; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == State::kReturned) continue;
    if (first != nullptr && !same_place(thread.place, first->place)) {
      fail("the threads of a block wait at different barriers: " +
           described(static_cast<unsigned>(first - threads_.data()), *first) + ", " +
           described(i, thread));
    }
    if (first == nullptr) first = &thread;
  }
  for (unsigned i = 0; i < count_; ++i) {
    if (threads_[i].state == State::kAtBlockBarrier) threads_[i].state = State::kReady;
  }
  return first != nullptr;
}

void Machine::wait(State state, unsigned mask, Place place) {
  const unsigned number = running_;
  Thread& thread = threads_[number];
  thread.state = state;
  thread.mask = mask;
  thread.place = place;
  thread.fiber.leave();
}

}  // namespace

void block_barrier(Place place) {
  machine().wait(State::kAtBlockBarrier, 0, place);
}

void warp_barrier(unsigned mask, Place place) {
  machine().wait(State::kAtWarpBarrier, mask, place);
}

std::uint64_t shuffle(unsigned mask, std::uint64_t value, unsigned source, Place place) {
  Thread& thread = machine().running();
  thread.value = value;
  thread.source = source;
  machine().wait(State::kAtShuffle, mask, place);
  return thread.value;
}

unsigned ballot(unsigned mask, bool predicate, Place place) {
  Thread& thread = machine().running();
  thread.value = predicate ? 1 : 0;
  machine().wait(State::kAtBallot, mask, place);
  return static_cast<unsigned>(thread.value);
}

unsigned lane() {
  return machine().running_lane();
}

}  // namespace emulator

static std::int64_t num_launches = 0;

void emulate(const char* kernel_name, dim3 grid, dim3 block, const std::function<void()>& thread) {
  ++num_launches;
  emulator::machine().run(kernel_name, grid, block, thread);
}

std::int64_t num_emulated_launches() {
  return num_launches;
}

void set_emulated_order(EmulatedOrder order) {
  emulator::machine().set_order(order);
}

}  // namespace mezzo::kernels::cuda
