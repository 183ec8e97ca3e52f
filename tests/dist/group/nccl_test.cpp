#include "mezzo/dist/group/nccl.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "mezzo/core/error.h"
#include "mezzo/runtime/cuda_services.h"

#include "support/devices.h"
#include "support/errors.h"

namespace mezzo::test {
namespace {

// A ProcessGroup of one process makes no communicator, so these tests use NCCL as one with several
// would: they find a library that does not load, and operations or dtypes that it refuses. Only
// with MEZZO_TEST_DEVICE=cuda: after a use of the device this program's other tests cannot spawn.

c10::intrusive_ptr<c10d::Backend> communicator_of_one() {
  const auto make_nccl = required_cuda_services("test").make_nccl;
  MEZZO_CHECK(make_nccl != nullptr, "expected a CUDA library with NCCL");
  return make_nccl(c10::make_intrusive<c10d::HashStore>(), 0, 1, std::chrono::minutes(1));
}

/// Waits, and compares with what one rank must get: its own numbers.
void expect_own(const c10::intrusive_ptr<c10d::Work>& work, const at::Tensor& result,
                const at::Tensor& own, const char* what) {
  work->wait();
  EXPECT_TRUE(at::equal(result.cpu(), own.cpu())) << what << " of " << own.scalar_type();
}

TEST(Nccl, one_rank_runs_every_collective) {
  if (on_cpu()) GTEST_SKIP() << "MEZZO_TEST_DEVICE is not cuda";
  const auto group = communicator_of_one();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
                                    at::kChar, at::kInt, at::kLong}) {
    const at::Tensor own = at::arange(30, on_device()).remainder(7).to(type).view({5, 6});
    std::vector<at::Tensor> sent = {own.clone()};
    expect_own(group->allreduce(sent), sent.front(), own, "all_reduce");
    expect_own(group->broadcast(sent), sent.front(), own, "broadcast");
    at::Tensor input = own.clone(), result = at::zeros_like(own);
    expect_own(group->_allgather_base(result, input), result, own, "all_gather");
    result = at::zeros_like(own);
    expect_own(group->_reduce_scatter_base(result, input), result, own, "reduce_scatter");
    result = at::zeros_like(own);
    std::vector<std::int64_t> arriving = {5}, leaving = {5};
    expect_own(group->alltoall_base(result, input, arriving, leaving), result, own, "all_to_all");
  }
  c10d::BarrierOptions options;
  options.device_ids = {test_device().index()};
  group->barrier(options)->wait();
}

using dist::Backend;
using Machines = std::vector<dist::detail::Machine>;

TEST(BackendChoice, automatic_is_nccl_if_every_process_has_its_own_gpu) {
  const auto automatic = [](const Machines& machines) {
    return dist::detail::choose_backend(Backend::kAutomatic, machines);
  };
  EXPECT_EQ(automatic({{"a", 1, 1}}), Backend::kNccl);
  EXPECT_EQ(automatic({{"a", 4, 4}, {"b", 2, 8}}), Backend::kNccl);
  EXPECT_EQ(automatic({{"a", 1, 0}}), Backend::kGloo);
  EXPECT_EQ(automatic({{"a", 2, 1}}), Backend::kGloo);
  EXPECT_EQ(automatic({{"a", 4, 4}, {"b", 2, 1}}), Backend::kGloo);
}

TEST(BackendChoice, a_request_is_honoured_or_refused) {
  const Machines enough = {{"a", 2, 2}}, lacking = {{"a", 2, 2}, {"b", 2, 1}};
  for (const Machines& machines : {enough, lacking, Machines{{"a", 1, 0}}}) {
    EXPECT_EQ(dist::detail::choose_backend(Backend::kGloo, machines), Backend::kGloo);
  }
  EXPECT_EQ(dist::detail::choose_backend(Backend::kNccl, enough), Backend::kNccl);
  EXPECT_THROWS(InvalidArgument,
                "dist::init: NCCL: expected a GPU for each process of a machine, got 2 processes "
                "and 1 GPU on b; start fewer processes",
                dist::detail::choose_backend(Backend::kNccl, lacking));
}

TEST(BackendChoice, gpus_that_several_processes_see_count_once) {
  const auto numbers = [](const std::vector<std::string>& hosts,
                          const std::vector<std::string>& gpus) {
    std::string text;
    for (const dist::detail::Machine& machine : dist::detail::machines_of(hosts, gpus)) {
      text += fmt::format("{} {} {};", machine.host, machine.processes, machine.gpus);
    }
    return text;
  };
  EXPECT_EQ(numbers({"a", "a"}, {"", ""}), "a 2 0;");
  EXPECT_EQ(numbers({"a", "a"}, {"01:00.0 02:00.0", "01:00.0 02:00.0"}), "a 2 2;");
  EXPECT_EQ(numbers({"a", "a"}, {"01:00.0", "01:00.0"}), "a 2 1;");
  EXPECT_EQ(numbers({"a", "a"}, {"01:00.0", "02:00.0"}), "a 2 2;");  // each sees its own
  EXPECT_EQ(numbers({"a", "b", "a"}, {"01:00.0", "01:00.0", ""}), "a 2 1;b 1 1;");
}

}  // namespace
}  // namespace mezzo::test
