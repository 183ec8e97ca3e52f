#include "mezzo/dist/rendezvous/spawn.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/rendezvous/failure.h"
#include "mezzo/dist/rendezvous/reserved_port.h"

namespace mezzo::dist {
namespace {

using SpawnWork = std::function<void(ProcessGroup&, const Graph&)>;

constexpr std::int64_t kSpawnMaxProcesses = 1024;
constexpr std::chrono::milliseconds kSpawnPoll{20};        // polling for deaths without a report
constexpr std::chrono::milliseconds kSpawnSettle{20};      // for a death after the first report
constexpr std::chrono::milliseconds kSpawnHearing{8000};   // for the cause of reported lost ranks
constexpr std::chrono::milliseconds kSpawnPatience{1500};  // between SIGTERM and SIGKILL

[[noreturn]] void raise_system_error(const char* what) {
  throw IoError(fmt::format("spawn: {}: {}", what, std::strerror(errno)));
}

struct SpawnPipe {
  detail::Descriptor read, write;
};

SpawnPipe make_spawn_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) raise_system_error("pipe");
  return {detail::Descriptor(ends[0]), detail::Descriptor(ends[1])};
}

/// Whether this process has initialized the CUDA driver. Does not initialize it: uses the driver
/// only if it is already loaded.
bool has_used_cuda() {
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (driver == nullptr) return false;
  int devices = 0;
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
  const bool is_initialised = count != nullptr && count(&devices) == 0;
  ::dlclose(driver);
  return is_initialised && devices > 0;
}

void flush_standard_streams() {
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
}

/// How a worker's task ended; kLostAnother: it failed because another worker had failed.
enum class SpawnEnd : std::uint8_t { kDone, kFailed, kLostAnother };

/// Final report of a worker. One write, small enough to be atomic. All workers share one pipe,
/// which orders the reports.
struct SpawnReport {
  std::int32_t rank = 0;
  std::uint16_t size = 0;
  SpawnEnd end = SpawnEnd::kDone;
  detail::FailureKind kind = detail::FailureKind::kOther;  // unless it is done
  char text[PIPE_BUF - 8] = {};
};
static_assert(sizeof(SpawnReport) <= PIPE_BUF);

void write_report(int descriptor, std::int64_t rank,
                  const std::optional<detail::Failure>& failure) {
  SpawnReport report;
  report.rank = static_cast<std::int32_t>(rank);
  if (failure) {
    report.end = detail::has_failed_with_another() ? SpawnEnd::kLostAnother : SpawnEnd::kFailed;
    report.kind = failure->kind;
    report.size = static_cast<std::uint16_t>(std::min(failure->text.size(), sizeof(report.text)));
    failure->text.copy(report.text, report.size);
  }
  while (::write(descriptor, &report, sizeof(report)) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void raise_report(const SpawnReport& report) {
  const std::string_view text(report.text, report.size);
  detail::raise_failure({.kind = report.kind, .text = std::string(text)}, report.rank);
}

/// The worker's ends of the pipes, and its task.
struct SpawnTask {
  InitOptions options;
  int num_threads = 1;
  int report = -1;   // write end
  int release = -1;  // read end: closed when all workers are done
  const Graph* graph = nullptr;
  const SpawnWork* work = nullptr;
};

/// Sends the report while the group is alive, so that it precedes the reports of ranks that miss
/// this one. For the same reason a worker that is done waits for all others.
void run_task(const SpawnTask& task) {
  std::optional<ProcessGroup> group;
  std::optional<detail::Failure> failure;
  try {
    at::set_num_threads(task.num_threads);
    group.emplace(init(task.options));
    (*task.work)(*group, *task.graph);
  } catch (...) {
    failure = detail::current_failure();
  }
  flush_standard_streams();
  write_report(task.report, task.options.rank, failure);
  char unused = 0;
  if (!failure) {
    while (::read(task.release, &unused, 1) < 0 && errno == EINTR) {
    }
  }
  ::_exit(failure ? 1 : 0);
}

/// Body of a worker after the fork. The task runs in a new thread: the OpenMP threads of the
/// forking thread do not exist here, and a parallel region would wait for them forever.
[[noreturn]] void run_worker(const SpawnTask& task, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGPIPE, SIG_IGN);  // a broken connection is an error, it must not end the worker
  if (::getppid() != parent) ::_exit(1);
  detail::forget_failure_of_another();  // inherited from the parent
  try {
    const at::ThreadLocalState state;
    std::thread([&] {
      const at::ThreadLocalStateGuard guard(state);
      run_task(task);
    }).join();
  } catch (...) {
    write_report(task.report, task.options.rank, detail::current_failure());
  }
  ::_exit(1);
}

/// The worker processes; the destructor stops and reaps them.
class SpawnedWorkers {
 public:
  SpawnedWorkers() { ::fcntl(reports_.read.get(), F_SETFL, O_NONBLOCK); }
  SpawnedWorkers(const SpawnedWorkers&) = delete;
  SpawnedWorkers& operator=(const SpawnedWorkers&) = delete;
  ~SpawnedWorkers() { end(); }

  void start(SpawnTask task) {
    task.report = reports_.write.get();
    task.release = release_.read.get();
    const pid_t parent = ::getpid();
    const pid_t process = ::fork();
    if (process < 0) raise_system_error("fork");
    if (process == 0) {
      reports_.read.close();
      release_.write.close();
      run_worker(task, parent);
    }
    workers_.push_back({.process = process});
  }

  /// Waits until all are done; throws the failure of a worker.
  void wait() {
    reports_.write.close();
    while (!std::all_of(workers_.begin(), workers_.end(),
                        [](const Worker& worker) { return worker.is_done; })) {
      look(kSpawnPoll);
      if (!failure_ && !has_cause()) continue;
      hear_cause();
      const std::optional<std::string> death = death_without_word();
      end();
      if (death) throw LogicError(*death);
      raise_report(*failure_);
    }
    release_.write.close();
    for (Worker& worker : workers_) reap(worker, 0);
  }

 private:
  struct Worker {
    pid_t process = 0;
    bool is_running = true;
    bool is_done = false;     // its task is done
    bool has_failed = false;  // and it has reported that
    int status = 0;           // from waitpid, once it has ended
  };

  /// Waits a while for reports, then records deaths and reports. Deaths first: then the reports
  /// of dead workers are then certainly readable.
  void look(std::chrono::milliseconds wait) {
    pollfd reports{reports_.read.get(), POLLIN, 0};
    ::poll(&reports, 1, static_cast<int>(wait.count()));
    for (Worker& worker : workers_) reap(worker, WNOHANG);
    SpawnReport report;
    while (::read(reports_.read.get(), &report, sizeof(report)) == sizeof(report)) {
      Worker& worker = workers_[static_cast<std::size_t>(report.rank)];
      worker.is_done = report.end == SpawnEnd::kDone;
      worker.has_failed = !worker.is_done;
      if (worker.has_failed && (!failure_ || (is_cause(report) && !is_cause(*failure_)))) {
        failure_ = report;
      }
    }
  }

  /// Waits for the cause of a failure. Ranks that lost another one may report before that one
  /// reports its error.
  void hear_cause() {
    using Clock = std::chrono::steady_clock;
    std::this_thread::sleep_for(kSpawnSettle);
    look({});
    const Clock::time_point deadline = Clock::now() + kSpawnHearing;
    while (!has_cause() && std::any_of(workers_.begin(), workers_.end(), may_yet_speak) &&
           Clock::now() < deadline) {
      look(kSpawnPoll);
    }
  }

  static void reap(Worker& worker, int options) {
    if (!worker.is_running) return;
    pid_t ended = 0;
    while ((ended = ::waitpid(worker.process, &worker.status, options)) < 0 && errno == EINTR) {
    }
    worker.is_running = ended == 0;
  }

  static bool died_without_word(const Worker& worker) {
    return !worker.is_running && !worker.is_done && !worker.has_failed;
  }

  static bool may_yet_speak(const Worker& worker) {
    return worker.is_running && !worker.is_done && !worker.has_failed;
  }

  static bool is_cause(const SpawnReport& report) { return report.end == SpawnEnd::kFailed; }

  bool has_cause() const {
    return (failure_ && is_cause(*failure_)) ||
           std::any_of(workers_.begin(), workers_.end(), died_without_word);
  }

  /// A worker that died without a report; it explains the reports of ranks that miss it.
  std::optional<std::string> death_without_word() const {
    const auto worker = std::find_if(workers_.begin(), workers_.end(), died_without_word);
    if (worker == workers_.end()) return std::nullopt;
    const auto rank = worker - workers_.begin();
    if (WIFSIGNALED(worker->status)) {
      const int number = WTERMSIG(worker->status);
      const char* const name = ::sigabbrev_np(number);
      return fmt::format("rank {}: ended by signal {} ({})", rank,
                         name != nullptr ? "SIG" + std::string(name) : std::to_string(number),
                         ::strsignal(number));
    }
    return fmt::format("rank {}: ended with exit code {} before its work was done", rank,
                       WEXITSTATUS(worker->status));
  }

  void end() {
    const auto signal_running = [this](int number) {
      for (const Worker& worker : workers_) {
        if (worker.is_running) ::kill(worker.process, number);
      }
    };
    const auto is_running = [this] {
      for (Worker& worker : workers_) reap(worker, WNOHANG);
      return std::any_of(workers_.begin(), workers_.end(),
                         [](const Worker& worker) { return worker.is_running; });
    };
    const auto deadline = std::chrono::steady_clock::now() + kSpawnPatience;
    signal_running(SIGTERM);
    while (is_running() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    signal_running(SIGKILL);
    for (Worker& worker : workers_) reap(worker, 0);
  }

  SpawnPipe reports_ = make_spawn_pipe();
  SpawnPipe release_ = make_spawn_pipe();
  std::vector<Worker> workers_;
  std::optional<SpawnReport> failure_;  // the first one with a cause, else the first one
};

}  // namespace

void spawn(std::int64_t processes, const Graph& graph, const SpawnWork& work, Backend backend) {
  MEZZO_CHECK(processes >= 1 && processes <= kSpawnMaxProcesses,
              "spawn: processes: expected 1 to {}, got {}", kSpawnMaxProcesses, processes);
  MEZZO_CHECK(work != nullptr, "spawn: work: expected a function, got an empty one");
  MEZZO_CHECK(!has_used_cuda(),
              "spawn: this process has used CUDA, which its forks cannot go on with; use 'mezzo "
              "launch', or use CUDA in the workers only");
  const detail::ReservedPort port;
  const auto share = at::get_num_threads() / processes;
  SpawnTask task;
  task.options.world_size = processes;
  task.options.address = "127.0.0.1";
  task.options.port = port.number();
  task.options.backend = backend;
  task.num_threads = static_cast<int>(std::max<std::int64_t>(1, share));
  task.graph = &graph;
  task.work = &work;
  if (processes > 1) static_cast<void>(graph.topology().csc());  // else each would build its own
  flush_standard_streams();
  SpawnedWorkers workers;
  for (std::int64_t rank = 0; rank < processes; ++rank) {
    task.options.rank = task.options.local_rank = rank;
    if (rank == 1) port.wait_for_listener();
    workers.start(task);
  }
  workers.wait();
}

}  // namespace mezzo::dist
