#include "mezzo/dist/group/nccl.h"

#include <algorithm>
#include <set>
#include <sstream>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "mezzo/core/error.h"
#include "mezzo/core/log.h"
#include "mezzo/runtime/cuda_services.h"

namespace mezzo::dist::detail {
namespace {

std::int64_t gpu_count() {
  return at::hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0;
}

}  // namespace

std::vector<Machine> machines_of(const std::vector<std::string>& hosts,
                                 const std::vector<std::string>& gpus) {
  std::vector<Machine> machines;
  std::vector<std::set<std::string>> addresses;  // by machine
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto known = std::find_if(machines.begin(), machines.end(), [&](const Machine& machine) {
      return machine.host == hosts[rank];
    });
    const auto index = static_cast<std::size_t>(known - machines.begin());
    if (known == machines.end()) {
      machines.push_back({.host = hosts[rank], .processes = 0});
      addresses.emplace_back();
    }
    std::istringstream words(gpus[rank]);
    for (std::string address; words >> address;) addresses[index].insert(address);
    ++machines[index].processes;
    machines[index].gpus = static_cast<std::int64_t>(addresses[index].size());
  }
  return machines;
}

Backend choose_backend(Backend requested, const std::vector<Machine>& machines) {
  if (requested == Backend::kGloo) return requested;
  const auto lacking = std::find_if(machines.begin(), machines.end(), [](const Machine& machine) {
    return machine.gpus < machine.processes;
  });
  if (lacking == machines.end()) return Backend::kNccl;
  const std::string numbers = fmt::format("{} process{} and {} GPU{} on {}", lacking->processes,
                                          lacking->processes == 1 ? "" : "es", lacking->gpus,
                                          lacking->gpus == 1 ? "" : "s", lacking->host);
  MEZZO_CHECK(requested == Backend::kAutomatic,
              "dist::init: NCCL: expected a GPU for each process of a machine, got {}; start fewer "
              "processes, or use Gloo and tensors on the CPU",
              numbers);
  mezzo::detail::log("dispatch", "collectives by Gloo: " + numbers);
  return Backend::kGloo;
}

std::string gpus_for_nccl() {
  const CudaServices* services = cuda_services();
  if (services == nullptr || services->make_nccl == nullptr || gpu_count() == 0) return {};
  return fmt::format("{}", fmt::join(services->gpu_addresses(), " "));
}

void require_nccl() {
  const CudaServices& services = required_cuda_services("dist::init: NCCL");
  MEZZO_CHECK(services.make_nccl != nullptr,
              "dist::init: mezzo's CUDA library was built without NCCL");
  MEZZO_CHECK(gpu_count() > 0, "dist::init: NCCL needs a GPU, and there is none");
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            std::int64_t rank, std::int64_t world_size,
                                            std::chrono::milliseconds timeout) {
  require_nccl();
  return cuda_services()->make_nccl(store, rank, world_size, timeout);
}

c10::DeviceIndex use_gpu(std::int64_t local_rank) {
  const std::int64_t count = gpu_count();
  const std::int64_t number = count == 1 ? 0 : local_rank;
  MEZZO_CHECK(number < count, "dist::init: local rank {} has no GPU: this machine has {}",
              local_rank, count);
  const auto index = static_cast<c10::DeviceIndex>(number);
  c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice({c10::kCUDA, index});
  return index;
}

}  // namespace mezzo::dist::detail
