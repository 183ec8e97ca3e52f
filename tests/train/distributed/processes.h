#pragma once

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "dist/processes.h"
#include "support/npy_writer.h"
#include "train/checkpoints.h"

/// Runs of several processes. Each is this program, started for the test in process_work_test.cpp.
namespace mezzo::test {

inline std::string own_path() {
  std::array<char, 4096> path{};
  return ::readlink("/proc/self/exe", path.data(), path.size() - 1) > 0 ? path.data() : "";
}

/// Runs `work` in `num_processes` processes and returns the output of each: losses, or an error.
inline std::vector<std::string> run_processes(const TempFolder& folder, int num_processes,
                                              const std::string& work) {
  const FreePort port;
  // ctest sets these for this process.
  std::string script = "unset GTEST_TOTAL_SHARDS GTEST_SHARD_INDEX; ";
  for (int process = 0; process < num_processes; ++process) {
    folder.remove(fmt::format("{}.{}", work, process));
    script += fmt::format(
        "RANK={0} WORLD_SIZE={1} LOCAL_RANK={0} MASTER_ADDR=127.0.0.1 MASTER_PORT={2} "
        "OMP_NUM_THREADS=1 MEZZO_TEST_WORK='{3}' MEZZO_TEST_FOLDER='{4}' timeout -s KILL 120 '{5}' "
        "--gtest_also_run_disabled_tests --gtest_filter=DISABLED_Process.works >'{4}/log{0}' 2>&1 "
        "& ",
        process, num_processes, port.number(), work, folder.path(), own_path());
  }
  EXPECT_EQ(std::system((script + "wait").c_str()), 0);
  std::vector<std::string> outputs;
  for (int process = 0; process < num_processes; ++process) {
    const std::string path = folder.path(fmt::format("{}.{}", work, process));
    outputs.push_back(read_file(path));
    EXPECT_FALSE(outputs.back().empty()) << read_file(folder.path(fmt::format("log{}", process)));
  }
  return outputs;
}

class DistributedTest : public testing::Test {
 protected:
  const TempFolder folder;
};

}  // namespace mezzo::test
