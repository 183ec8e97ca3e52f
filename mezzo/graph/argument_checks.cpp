#include "mezzo/graph/argument_checks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"

namespace mezzo::detail {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  const at::IntArrayRef sizes = tensor.sizes();
  return fmt::format("{}{} [{}]", tensor.layout() == at::kStrided ? "" : "sparse ",
                     c10::getDtypeNames(tensor.scalar_type()).first,
                     fmt::join(sizes.begin(), sizes.end(), ", "));
}

std::string_view dense_hint(const at::Tensor& tensor) {
  const bool sparse = tensor.defined() && tensor.layout() != at::kStrided;
  return sparse ? "; convert it with .to_dense()" : "";
}

void check_gathers_rows(const std::string& name, const at::Tensor& column) {
  MEZZO_CHECK(column.layout() != at::kSparseCsr,
              "column '{}': expected a strided tensor to gather rows of, got {}{}", name,
              describe(column), dense_hint(column));
}

at::Device resolve_device(std::string_view what, at::Device device) {
  MEZZO_CHECK(device.is_cpu() || device.is_cuda(), "{}: expected a CPU or CUDA device, got {}",
              what, device.str());
  if (device.is_cpu()) return {at::kCPU};
  const auto count = static_cast<std::int64_t>(at::hasCUDA() ? at::getNumGPUs() : 0);
  MEZZO_CHECK(device.has_index() ? device.index() < count : count > 0,
              "{}: expected one of {} CUDA devices, got {}", what, count, device.str());
  return device.has_index() ? device : at::empty({0}, at::device(device)).device();
}

}  // namespace mezzo::detail
