#include "mezzo/cli/launch/launcher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mezzo/cli/launch/launcher_output.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/error.h"

namespace mezzo::cli {
namespace {

using Clock = std::chrono::steady_clock;
using mezzo::detail::raise;

constexpr auto kAddress = "127.0.0.1";
// A training process only records the first SIGTERM; the second one ends it, after the time that a
// process needs to report a lost peer.
constexpr auto kUntilSecondTerm = std::chrono::seconds(8);
constexpr auto kUntilKill = std::chrono::seconds(12);
constexpr int kCannotStart = 127;  // as shells have it

Descriptor checked(int number, const char* what) {
  if (number < 0) raise<IoError>("launch: {}: {}", what, std::strerror(errno));
  return Descriptor(number);
}

/// `port`, or a free port instead of 0.
dist::detail::ReservedPort reserve(std::int64_t port) {
  try {
    return dist::detail::ReservedPort(static_cast<std::uint16_t>(port));
  } catch (const IoError& fault) {
    raise<IoError>("--port: {} cannot be used on this machine: {}", port, fault.what());
  }
}

/// The write end of a pipe; `lines` gets the read end.
Descriptor make_pipe(int to, const std::string& prefix, Lines& lines) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    raise<IoError>("launch: cannot make a pipe: {}", std::strerror(errno));
  }
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);  // the process's end stays a blocking one
  lines = Lines(Descriptor(ends[0]), to, prefix);
  return Descriptor(ends[1]);
}

struct Process {
  pid_t id = -1;
  bool running = false;
  Lines out, err;
};

/// The arguments of a process; built before the fork, since nothing may be allocated after it.
struct Image {
  std::vector<std::string> words, variables;

  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> list;
    for (std::string& text : texts) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
  }
};

std::vector<std::string> variables_of(const LaunchOptions& options, std::int64_t rank) {
  std::vector<std::pair<std::string, std::string>> set = {
      {"RANK", std::to_string(rank)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(options.processes)},
      {"LOCAL_WORLD_SIZE", std::to_string(options.processes)},
      {"MASTER_ADDR", kAddress},
      {"MASTER_PORT", std::to_string(options.port)},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {kLaunchedVariable, "1"},
  };
  if (options.threads) {
    set.emplace_back("OMP_NUM_THREADS", std::to_string(*options.threads));
  } else if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
    set.emplace_back("OMP_NUM_THREADS",
                     std::to_string(std::max<std::int64_t>(1, cores / options.processes)));
  }
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string_view name = text.substr(0, text.find('='));
    const bool ours = std::any_of(set.begin(), set.end(),
                                  [name](const auto& entry) { return entry.first == name; });
    if (!ours) variables.emplace_back(text);
  }
  for (const auto& [name, value] : set) variables.push_back(fmt::format("{}={}", name, value));
  return variables;
}

/// The processes of one launch.
class Launcher {
 public:
  Launcher(LaunchOptions options, const Arguments& words);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  int run();

 private:
  void start(std::int64_t rank);
  void wait_for_news();
  void hear_signals();
  void reap();
  void ended(std::size_t rank, int status);
  bool was_sent(int signal) const;
  void report_failure(std::size_t rank, int code, const std::string& ending);
  void report_lost_peer();
  void end_others();
  void give_time();
  void press();
  void interrupt(int signal);
  void pass_on(int signal) const;
  bool is_running() const;

  LaunchOptions options_;
  Arguments words_;
  dist::detail::ReservedPort port_;
  sigset_t mask_before_{};
  struct sigaction pipe_before_ = {}, child_before_ = {};
  Descriptor signals_;
  std::vector<Process> processes_;
  int code_ = kSuccess;  // of the process that is named
  // The first that failed because it lost another; that one may come to its end later.
  std::optional<std::size_t> first_lost_peer_;
  bool interrupts_sent_ = false;
  bool interrupted_ = false;  // a process ended by an interrupt
  bool ending_ = false;       // the processes are being ended
  // What comes next once one has failed, and when.
  std::optional<Clock::time_point> term_again_, kill_;
};

Launcher::Launcher(LaunchOptions options, const Arguments& words)
    : options_(std::move(options)), words_(words), port_(reserve(options_.port)) {
  options_.port = port_.number();
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGINT, SIGTERM, SIGCONT, SIGCHLD}) sigaddset(&mask, signal);
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP}) {
    struct sigaction current = {};
    sigaction(signal, nullptr, &current);
    if (current.sa_handler != SIG_IGN) sigaddset(&mask, signal);  // else nohup, say, started this
  }
  sigprocmask(SIG_BLOCK, &mask, &mask_before_);
  signals_ = checked(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK), "cannot wait for signals");
  // If nobody reads the output, as with `head`, training continues.
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &pipe_before_);
  // If it is ignored, which may be inherited, the kernel does not report how a process ended.
  struct sigaction usual = {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &usual, &child_before_);
  processes_.resize(static_cast<std::size_t>(options_.processes));
}

/// Ends all processes if run() did not complete.
Launcher::~Launcher() {
  pass_on(SIGKILL);
  for (const Process& process : processes_) {
    if (process.running) ::waitpid(process.id, nullptr, 0);
  }
  sigaction(SIGCHLD, &child_before_, nullptr);
  sigaction(SIGPIPE, &pipe_before_, nullptr);
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

/// In the child: never returns. Only what is safe after a fork.
[[noreturn]] void become(pid_t parent, const std::array<int, 3>& streams, const sigset_t& mask,
                         char* const* words, char* const* variables) {
  // Its own process group, so that Ctrl-C in a terminal comes once, from the launcher.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kCannotStart);  // it died before that was set
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGTTOU, SIG_IGN);  // rank 0 may draw on the terminal from its own group
  for (int number = 0; number < 3; ++number) {
    const int stream = streams[static_cast<std::size_t>(number)];
    if (stream >= 0) ::dup2(stream, number);
  }
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execve("/proc/self/exe", words, variables);
  ::_exit(kCannotStart);
}

void Launcher::start(std::int64_t rank) {
  Image image{.words = words_, .variables = variables_of(options_, rank)};
  image.words.insert(image.words.begin(), "mezzo");
  const std::vector<char*> words = Image::pointers(image.words);
  const std::vector<char*> variables = Image::pointers(image.variables);
  Process& process = processes_[static_cast<std::size_t>(rank)];
  const std::string prefix = fmt::format("[{}] ", rank);
  const Descriptor in = checked(::open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null");
  const Descriptor out = make_pipe(STDOUT_FILENO, prefix, process.out);
  Descriptor err;
  if (rank > 0 || ::isatty(STDERR_FILENO) == 0) {
    err = make_pipe(STDERR_FILENO, prefix, process.err);
  }
  sigset_t mask = mask_before_;
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&mask, signal);  // until it handles them
  const pid_t parent = ::getpid();
  process.id = ::fork();
  if (process.id < 0)
    raise<IoError>("launch: cannot start rank {}: {}", rank, std::strerror(errno));
  if (process.id == 0) {
    become(parent, {in.get(), out.get(), err.get()}, mask, words.data(), variables.data());
  }
  ::setpgid(process.id, process.id);  // here too: whoever comes first
  process.running = true;
}

bool Launcher::is_running() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Process& process) { return process.running; });
}

void Launcher::pass_on(int signal) const {
  for (const Process& process : processes_) {
    if (process.running) ::kill(-process.id, signal);
  }
}

int Launcher::run() {
  for (std::int64_t rank = 0; rank < options_.processes; ++rank) start(rank);
  while (is_running()) {
    wait_for_news();
    for (Process& process : processes_) {
      process.out.read();
      process.err.read();
    }
    hear_signals();
    reap();
    press();
  }
  for (Process& process : processes_) {
    process.out.read();
    process.err.read();
    process.out.finish();
    process.err.finish();
  }
  report_lost_peer();
  if (code_ != kSuccess || interrupted_) return code_ != kSuccess ? code_ : kInterrupted;
  const bool lost = std::any_of(processes_.begin(), processes_.end(),
                                [](const Process& process) { return process.out.is_lost(); });
  if (lost) raise<IoError>("launch: the standard output: writing failed");
  return kSuccess;
}

/// Returns when a process printed or ended, a signal arrived, or a deadline passed.
void Launcher::wait_for_news() {
  std::vector<pollfd> watched = {{.fd = signals_.get(), .events = POLLIN, .revents = 0}};
  for (const Process& process : processes_) {
    for (const int descriptor : {process.out.descriptor(), process.err.descriptor()}) {
      if (descriptor >= 0) watched.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
    }
  }
  int milliseconds = -1;
  if (const auto& next = term_again_ ? term_again_ : kill_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
    milliseconds = static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }
  ::poll(watched.data(), watched.size(), milliseconds);
}

void Launcher::hear_signals() {
  signalfd_siginfo signal = {};
  while (::read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
    const int number = static_cast<int>(signal.ssi_signo);
    if (number == SIGINT || number == SIGTERM || number == SIGHUP) {
      interrupt(number == SIGINT ? SIGINT : SIGTERM);
    } else if (number != SIGCHLD) {
      pass_on(number);
    }
    // Not by SIGTSTP, which does nothing where no shell looks after this one's group.
    if (number == SIGTSTP) ::raise(SIGSTOP);
  }
}

void Launcher::interrupt(int signal) {
  pass_on(signal);
  interrupts_sent_ = true;
}

void Launcher::reap() {
  std::vector<std::pair<std::size_t, int>> news;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    int status = 0;
    Process& process = processes_[rank];
    if (!process.running || ::waitpid(process.id, &status, WNOHANG) != process.id) continue;
    process.running = false;
    process.out.read();
    process.err.read();
    news.emplace_back(rank, status);
  }
  // Ranks that fail with an exit code may have lost the rank that a signal ended.
  std::stable_partition(news.begin(), news.end(),
                        [](const auto& entry) { return WIFSIGNALED(entry.second); });
  for (const auto& [rank, status] : news) ended(rank, status);
}

void Launcher::ended(std::size_t rank, int status) {
  const bool by_signal = WIFSIGNALED(status);
  const int code = by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (code == kSuccess || code_ != kSuccess) return;
  if (!by_signal && code == kInterrupted) {
    // While training all ranks stop at one batch. Before, the others do not know of the signal.
    if (!interrupts_sent_) interrupt(SIGTERM);
    interrupted_ = true;
  } else if (!by_signal && code == kFailedWithAnother) {
    if (!first_lost_peer_) first_lost_peer_ = rank;
    // No SIGTERM: it could end the lost rank before it reports its error.
    give_time();
  } else if (!by_signal) {
    report_failure(rank, code, fmt::format("ended with exit code {}", code));
  } else if (const int signal = WTERMSIG(status); !was_sent(signal)) {
    report_failure(rank, code,
                   fmt::format("was ended by signal {} ({})", signal, ::strsignal(signal)));
  }
}

/// Whether it may have come from here, to end the processes.
bool Launcher::was_sent(int signal) const {
  return ending_ && (signal == SIGTERM || (signal == SIGKILL && !kill_));
}

void Launcher::report_failure(std::size_t rank, int code, const std::string& ending) {
  code_ = code;
  const bool others = is_running() && !ending_;
  const std::string line = fmt::format("mezzo: launch: rank {} {}{}\n", rank, ending,
                                       others ? "; ending the others" : "");
  std::fputs(line.c_str(), stderr);  // fmt::print throws where nobody reads
  end_others();
}

/// If no rank failed by itself, a link is down or a rank hangs. A rank that lost another by an
/// interrupt has not failed.
void Launcher::report_lost_peer() {
  if (!first_lost_peer_ || code_ != kSuccess || interrupted_) return;
  report_failure(*first_lost_peer_, kIoError, "lost another one");
}

void Launcher::end_others() {
  if (ending_) return;
  ending_ = true;
  pass_on(SIGTERM);
  give_time();
}

/// From the first failure on, of whatever kind.
void Launcher::give_time() {
  if (kill_) return;
  term_again_ = Clock::now() + kUntilSecondTerm;
  kill_ = Clock::now() + kUntilKill;
}

void Launcher::press() {
  const Clock::time_point now = Clock::now();
  if (term_again_ && now >= *term_again_) {
    report_lost_peer();
    pass_on(SIGTERM);
    term_again_.reset();
  }
  if (kill_ && !term_again_ && now >= *kill_) {
    pass_on(SIGKILL);
    kill_.reset();
  }
}

}  // namespace

int launch(const LaunchOptions& options, const Arguments& words) {
  return Launcher(options, words).run();
}

}  // namespace mezzo::cli
