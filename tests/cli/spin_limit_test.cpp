#include <csignal>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/command.h"
#include "support/npy_writer.h"

namespace mezzo {
namespace {

using test::Outcome;
using test::run_to;

/// The standard error of `mezzo data list`, where libgomp prints its settings.
class SpinLimit : public testing::Test {
 protected:
  SpinLimit() {
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    setenv("OMP_DISPLAY_ENV", "verbose", /*overwrite=*/1);
  }
  ~SpinLimit() override { unsetenv("OMP_DISPLAY_ENV"); }

  std::string settings() {
    const Outcome outcome = run_to(0, folder_, {"data", "list"});
    EXPECT_TRUE(test::contains(outcome.out, "wordnet"));
    return outcome.err;
  }

  const test::TempFolder folder_;
};

TEST_F(SpinLimit, threads_spin_for_a_short_time_by_default) {
  EXPECT_TRUE(test::contains(settings(), "GOMP_SPINCOUNT = '10000'"));
}

TEST_F(SpinLimit, what_the_user_has_set_stays) {
  setenv("GOMP_SPINCOUNT", "123", /*overwrite=*/1);
  EXPECT_TRUE(test::contains(settings(), "GOMP_SPINCOUNT = '123'"));
  unsetenv("GOMP_SPINCOUNT");
  setenv("OMP_WAIT_POLICY", "active", /*overwrite=*/1);
  EXPECT_TRUE(test::contains(settings(), "OMP_WAIT_POLICY = 'ACTIVE'"));
  EXPECT_FALSE(test::contains(settings(), "GOMP_SPINCOUNT = '10000'"));
  unsetenv("OMP_WAIT_POLICY");
}

TEST_F(SpinLimit, the_restart_keeps_arguments_and_open_files) {
  const Outcome outcome = run_to(2, folder_, {"train", "--dataset", "a 'b' \"c"});
  EXPECT_TRUE(test::contains(outcome.err, "a 'b' \"c"));
  const std::string list = folder_.path("list.json"), err = folder_.path("err.txt");
  const std::string config = folder_.write("c.toml", "json = '" + list + "'\n");
  const std::string line = test::quoted(MEZZO_COMMAND) + " data list --config /dev/fd/7 7<" +
                           test::quoted(config) + " >/dev/null 2>" + test::quoted(err);
  const int status = std::system(line.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0) << test::read_text(err);
  EXPECT_TRUE(test::contains(test::read_text(list), "wordnet"));
}

/// The exit code of a command that starts with the signal pending; -1 if the signal ended it.
int code_with_pending(int signal) {
  const pid_t child = fork();
  if (child == 0) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, signal);
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    raise(signal);
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    execl(MEZZO_COMMAND, MEZZO_COMMAND, "data", "list", static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(SpinLimit, a_signal_during_the_restart_is_exit_code_130) {
  EXPECT_EQ(code_with_pending(SIGTERM), 130);
  EXPECT_EQ(code_with_pending(SIGINT), 130);
}

}  // namespace
}  // namespace mezzo
