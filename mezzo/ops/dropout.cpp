// Dropout with a counter-based generator: whether an element stays depends only on (seed,
// position), so threads share the work and the gradient draws the same elements again without a
// mask.
#include "mezzo/ops/dropout.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "mezzo/core/error.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/ops.h"

namespace mezzo::detail {
namespace {

thread_local bool draws_on_device = false;

struct Dropout {
  at::Tensor x;
  double probability = 0;
  std::int64_t seed = 0;
  OptionalTensor seed_offset;

  static constexpr auto name = "dropout";
  static constexpr auto fields() {
    return std::tuple(Field{"x", &Dropout::x}, Field{"probability", &Dropout::probability},
                      Field{"seed", &Dropout::seed},
                      Field{"seed_offset", &Dropout::seed_offset, true});
  }
  using Result = at::Tensor;

  template <class Device>
  at::Tensor run() const {
    const DType dtype = dtype_of(name, x.scalar_type());
    const at::Tensor input = x.contiguous();
    const kernels::DropoutLevel dropout =
        dropout_level(name, probability, seed, seed_offset, x.device());
    if (dropout.threshold == kernels::kDropoutLevels) return at::zeros_like(input);
    at::Tensor out = at::empty_like(input);
    const kernels::DropoutArgs args{.dtype = dtype,
                                    .dropout = dropout,
                                    .count = input.numel(),
                                    .x = input.const_data_ptr(),
                                    .out = out.mutable_data_ptr()};
    Device::run(args, x.device());
    return out;
  }
  at::Tensor meta() const { return shape_of(x); }

  // The gradient is the same dropout of the upstream gradient.
  static constexpr bool is_linear = true;
  static at::Tensor forward(Saved<Dropout>& saved) {
    return dispatch(Dropout{std::exchange(saved.op.x, {}), saved.op.probability, saved.op.seed,
                            saved.op.seed_offset});
  }
  static Dropout backward(const Saved<Dropout>& saved, const at::Tensor& grad) {
    Dropout gradients;
    gradients.x =
        dispatch(Dropout{grad, saved.op.probability, saved.op.seed, saved.op.seed_offset});
    return gradients;
  }
};

const Registration<Dropout> kDropoutRegistration;

}  // namespace

DeviceDraws::DeviceDraws() : before_(draws_on_device) {
  draws_on_device = true;
}

DeviceDraws::~DeviceDraws() {
  draws_on_device = before_;
}

DropoutSeed draw_dropout_seed(at::Device device) {
  if (draws_on_device || is_capturing(device)) {
    return {.offset = at::empty({1}, at::TensorOptions(device).dtype(at::kLong)).random_()};
  }
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return {.number = static_cast<std::int64_t>(
              at::check_generator<at::CPUGeneratorImpl>(generator)->random64())};
}

void check_dropout(const char* what, double probability) {
  MEZZO_CHECK(probability >= 0 && probability <= 1, "{}: expected a probability in [0, 1], got {}",
              what, probability);
}

kernels::DropoutLevel dropout_level(const char* what, double probability, std::int64_t seed,
                                    const OptionalTensor& seed_offset, at::Device device) {
  check_dropout(what, probability);
  kernels::DropoutLevel level{
      .seed = static_cast<std::uint64_t>(seed),
      .threshold = static_cast<std::uint32_t>(std::lround(probability * kernels::kDropoutLevels))};
  if (!seed_offset || !seed_offset->defined()) return level;
  MEZZO_CHECK(seed_offset->scalar_type() == at::kLong && seed_offset->numel() == 1 &&
                  seed_offset->device() == device,
              "{}: expected a seed_offset of one int64 on {}, got {} of shape {} on {}", what,
              device.str(), c10::toString(seed_offset->scalar_type()),
              c10::str(seed_offset->sizes()), seed_offset->device().str());
  const auto* const offset = seed_offset->const_data_ptr<std::int64_t>();
  if (device.is_cpu()) {
    level.seed += static_cast<std::uint64_t>(*offset);
  } else {
    level.seed_offset = offset;
  }
  return level;
}

}  // namespace mezzo::detail

namespace mezzo {

at::Tensor feature_dropout(const at::Tensor& x, double probability, bool training) {
  detail::check_dropout("dropout", probability);
  MEZZO_CHECK(x.defined() && (x.layout() == at::kStrided || x.layout() == at::kSparseCsr),
              "dropout: expected x strided or sparse CSR, got {}",
              x.defined() ? c10::str(x.layout()) : "an undefined tensor");
  if (!training || probability == 0) return x;
  const detail::DropoutSeed seed = detail::draw_dropout_seed(x.device());
  const auto dropped = [&](const at::Tensor& values) {
    return detail::dispatch(detail::Dropout{values, probability, seed.number, seed.offset});
  };
  if (x.layout() != at::kSparseCsr) return dropped(detail::lowered_in_region(x));
  return at::_sparse_csr_tensor_unsafe(x.crow_indices(), x.col_indices(), dropped(x.values()),
                                       x.sizes(), x.options());
}

}  // namespace mezzo
