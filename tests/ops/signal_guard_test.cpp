// Signals at random moments of dense products. If a kernel moves the stack pointer away from the
// stack of its thread, the frame of a signal handler overwrites the heap; this handler reports it.
#include "mezzo/runtime/signal_guard.h"

#include <atomic>
#include <csignal>
#include <filesystem>
#include <thread>

#include <ATen/Parallel.h>
#include <omp.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "mezzo/ops/ops.h"

#include "support/tensors.h"

namespace mezzo::test {
namespace {

constexpr int kSignal = SIGUSR1;

std::atomic<int> handled = 0, handled_off_the_stack = 0;
/// The stack of this thread; null if unknown.
thread_local const char* stack_begin = nullptr;
thread_local const char* stack_end = nullptr;

extern "C" void count_frame(int /*signal*/, siginfo_t* /*info*/, void* context) {
  // The frame lies below the interrupted code's stack pointer.
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const auto* pointer = reinterpret_cast<const char*>(registers.gregs[REG_RSP]);
#else
  const auto* pointer = reinterpret_cast<const char*>(registers.sp);
#endif
  if (stack_begin == nullptr) return;
  ++handled;
  if (pointer < stack_begin || pointer > stack_end) ++handled_off_the_stack;
}

void note_stack() {
  pthread_attr_t attributes;
  void* begin = nullptr;
  std::size_t size = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &begin, &size);
  pthread_attr_destroy(&attributes);
  stack_end = static_cast<const char*>(begin) + size;
  stack_begin = static_cast<const char*>(begin);
}

/// While it lives, count_frame() handles kSignal on the stack of the interrupted thread, and each
/// other thread of the process gets about 1000 signals a second.
class SignalStorm {
 public:
  SignalStorm() {
    struct sigaction action = {};
    action.sa_sigaction = count_frame;
    action.sa_flags = static_cast<int>(SA_SIGINFO | SA_RESTART);
    sigaction(kSignal, &action, &before_);
    handled = handled_off_the_stack = 0;
    sender_ = std::thread([this] { send(); });
  }
  ~SignalStorm() {
    ends_ = true;
    sender_.join();
    std::signal(kSignal, SIG_IGN);  // discards signals that a thread has not received yet
    sigaction(kSignal, &before_, nullptr);
  }
  SignalStorm(const SignalStorm&) = delete;
  SignalStorm& operator=(const SignalStorm&) = delete;

 private:
  void send() {
    const pid_t process = ::getpid();
    const auto self = static_cast<pid_t>(::syscall(SYS_gettid));
    while (!ends_) {
      for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
        const pid_t thread = std::stoi(entry.path().filename().string());
        if (thread != self) ::syscall(SYS_tgkill, process, thread, kSignal);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  struct sigaction before_ = {};
  std::atomic<bool> ends_ = false;
  std::thread sender_;
};

/// Restores the number of threads.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) : before_(at::get_num_threads()) {
    at::set_num_threads(threads);
  }
  ~ThreadCount() { at::set_num_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

sigset_t mask_of_this_thread() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return mask;
}

/// The products of a training step: forward and both gradients.
void train_step(const at::Tensor& x, const at::Tensor& weight) {
  mezzo::linear(x, weight).sum().backward();
}

TEST(LinearSignals, handlers_run_on_the_stack_of_their_thread) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int threads : {1, 2}) {
      const ThreadCount count(threads);
#pragma omp parallel
      note_stack();
      const at::Tensor x = leaf(uniform({6000, 300}, dtype, 1));
      const at::Tensor weight = leaf(uniform({64, 300}, dtype, 2));
      train_step(x, weight);  // starts threads and generates code
      const SignalStorm storm;
      constexpr int kEnough = 400, kMostProducts = 3000;
      for (int i = 0; i < kMostProducts && handled < kEnough; ++i) train_step(x, weight);
      EXPECT_GE(handled, kEnough);
      EXPECT_EQ(handled_off_the_stack, 0) << c10::toString(dtype) << ", threads " << threads;
    }
  }
}

TEST(SignalGuard, handlers_run_after_it) {
  note_stack();
  struct sigaction action = {}, before = {};
  action.sa_sigaction = count_frame;
  action.sa_flags = static_cast<int>(SA_SIGINFO);
  sigaction(kSignal, &action, &before);
  handled = 0;
  {
    const SignalGuard guard;
    std::raise(kSignal);  // to this thread
    EXPECT_EQ(handled, 0);
  }
  EXPECT_EQ(handled, 1);
  sigaction(kSignal, &before, nullptr);
}

TEST(SignalGuard, covers_the_team_and_restores_its_masks) {
  const ThreadCount count(2);
  const auto threads_that_block = [] {
    std::atomic<int> threads = 0;
#pragma omp parallel
    {
      const sigset_t mask = mask_of_this_thread();
      if (sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGALRM) == 1) ++threads;
    }
    return threads.load();
  };
  const int team = omp_get_max_threads();
  EXPECT_EQ(threads_that_block(), 0);
  {
    const SignalGuard guard;
    EXPECT_EQ(threads_that_block(), team);
  }
  EXPECT_EQ(threads_that_block(), 0);
}

TEST(SignalGuard, lets_faults_through) {
  const SignalGuard guard;
  const sigset_t mask = mask_of_this_thread();
  for (const int fault : {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
    EXPECT_EQ(sigismember(&mask, fault), 0) << fault;
  }
}

}  // namespace
}  // namespace mezzo::test
