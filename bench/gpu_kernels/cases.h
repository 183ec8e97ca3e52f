#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "mezzo/core/dtype.h"
#include "mezzo/kernels/cuda_kernels.h"

#include "bench/gpu_kernels/graph.h"
#include "bench/gpu_kernels/memory.h"

namespace mezzo::bench::gpu {

/// A graph on the host and its arrays on the device.
struct DeviceGraph {
  HostGraph host;
  DeviceArray csc_indptr, csc_ids, csr_indptr, csr_ids;

  explicit DeviceGraph(HostGraph graph);
  kernels::Entries csc() const;  ///< second ids: 0, 1, ...
  kernels::Entries csr() const;
};

/// The kernels of a library, and memory for their workspaces.
class Library {
 public:
  /// Loads the library; throws std::runtime_error if that fails.
  Library(std::string name, const std::string& path);

  const std::string& name() const { return name_; }

  template <class Args>
  void run(const Args& args, std::int64_t num_entries) {
    const auto& kernel = std::get<kernels::CudaKernel<Args>>(*kernels_);
    const std::int64_t bytes = kernel.workspace(args, num_entries);
    if (bytes > workspace_.bytes()) {
      workspace_ = {};
      workspace_ = DeviceArray(bytes);
    }
    kernel.run(args,
               {.stream = nullptr, .workspace = workspace_.data(), .num_entries = num_entries});
  }

 private:
  std::string name_;
  const kernels::CudaKernels* kernels_ = nullptr;
  DeviceArray workspace_;
};

using Numbers = std::vector<double>;

/// What a row must be. Its error counts relative to its largest number, or to `scale` if that is
/// larger: the size of the terms of numbers that may cancel.
struct ExpectedRow {
  Numbers numbers;
  double scale = 0;

  ExpectedRow(Numbers all, double size = 0) : numbers(std::move(all)), scale(size) {}
};

/// A result and its definition in float64, for some rows.
struct Check {
  std::function<Numbers(std::int64_t row)> result;
  std::function<ExpectedRow(std::int64_t row)> expected;
  DType stored = DType::kFloat32;  ///< dtype in which it is stored
  std::function<void()> before;    ///< reads what `expected` needs from the device; or empty
};

/// A kernel with its operands.
struct Case {
  std::string work;
  std::int64_t width = 0;
  DType dtype = DType::kFloat32;
  std::int64_t moved_bytes = 0;  ///< read and written if nothing is reused
  std::vector<Check> checks;
  std::vector<DeviceArray*> results;  ///< poisoned before the run that is checked
  std::function<void(Library&)> run;
  std::shared_ptr<void> operands;
};

/// Kinds of cases; the sweep of a tuning takes those that it affects.
using MakeCase = Case (*)(const DeviceGraph&, DType, std::int64_t width);
struct CaseKind {
  std::string name;
  MakeCase make;
  std::vector<std::int64_t> widths;
};
const std::vector<CaseKind>& case_kinds();

}  // namespace mezzo::bench::gpu
