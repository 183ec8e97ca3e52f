// Dropout from the counter-based generator: whether an element stays depends on (seed, position)
// alone, so threads share the work, the gradient draws the same elements again, and no mask is
// kept. libtorch's own draws from one sequential generator and stores a mask of the input's size.
#include "mezzo/message_passing/dropout.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mezzo/core/error.h"
#include "mezzo/message_passing/arguments.h"
#include "mezzo/message_passing/device.h"
#include "mezzo/message_passing/operators.h"
#include "mezzo/message_passing/ops.h"
#include "mezzo/message_passing/schema.h"

namespace mezzo {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

template <class Device>
at::Tensor dropout_on(const at::Tensor& x, double probability, std::int64_t seed) {
  const at::Tensor given = x.contiguous();
  const DropoutLevel dropout = dropout_level("dropout", probability, seed);
  if (dropout.threshold == kDropoutLevels) return at::zeros_like(given);
  at::Tensor out = at::empty_like(given);
  const DropoutArgs args{.dtype = dtype_of("dropout", x.scalar_type()),
                         .dropout = dropout,
                         .count = given.numel(),
                         .x = given.const_data_ptr(),
                         .out = out.mutable_data_ptr()};
  Device::run(args, given.device());
  return out;
}

at::Tensor call(const at::Tensor& x, double probability, std::int64_t seed) {
  static const auto op =
      handle<at::Tensor(const at::Tensor&, double, std::int64_t)>("mezzo::dropout");
  return op.call(x, probability, seed);
}

struct Dropout : Function<Dropout> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, double probability,
                            std::int64_t seed) {
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->saved_data["probability"] = probability;
    ctx->saved_data["seed"] = seed;
    return call(x, probability, seed);
  }

  // Dropout is linear: its gradient is the same dropout, and so is that one's.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {
        call(grads[0], ctx->saved_data["probability"].toDouble(), ctx->saved_data["seed"].toInt()),
        {},
        {}};
  }
};

at::Tensor dropout_autograd(const at::Tensor& x, double probability, std::int64_t seed) {
  return Dropout::apply(x, probability, seed);
}

at::Tensor lowered_by_autocast(const at::Tensor& x) {
  const at::DeviceType device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return x;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(device), x, device);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(mezzo, m) {
  m.def("dropout(Tensor x, float probability, int seed) -> Tensor");
}
TORCH_LIBRARY_IMPL(mezzo, Autograd, m) {
  m.impl("dropout", &dropout_autograd);
}

template <class Device>
void declare_dropout(torch::Library& m) {
  m.impl("dropout", &dropout_on<Device>);
}

template void declare_dropout<OnCpu>(torch::Library&);
template void declare_dropout<OnCuda>(torch::Library&);

std::int64_t draw_dropout_seed(const char* what, at::Device device) {
  MEZZO_CHECK(!is_capturing(device),
              "{}: dropout cannot be captured into a CUDA graph, every replay would drop the same "
              "elements: set its probability to 0 or do not capture",
              what);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return static_cast<std::int64_t>(
      at::check_generator<at::CPUGeneratorImpl>(generator)->random64());
}

void check_dropout(const char* what, double probability) {
  MEZZO_CHECK(probability >= 0 && probability <= 1, "{}: expected a probability in [0, 1], got {}",
              what, probability);
}

DropoutLevel dropout_level(const char* what, double probability, std::int64_t seed) {
  check_dropout(what, probability);
  return {static_cast<std::uint64_t>(seed),
          static_cast<std::uint32_t>(std::lround(probability * kDropoutLevels))};
}

at::Tensor feature_dropout(const at::Tensor& x, double probability, bool training) {
  check_dropout("dropout", probability);
  if (!training || probability == 0) return x;
  const std::int64_t seed = draw_dropout_seed("dropout", x.device());
  if (x.layout() != at::kSparseCsr) return call(lowered_by_autocast(x), probability, seed);
  return at::_sparse_csr_tensor_unsafe(x.crow_indices(), x.col_indices(),
                                       call(x.values(), probability, seed), x.sizes(), x.options());
}

}  // namespace mezzo
