// Mixed precision for custom code: an operator with an autocast rule, then an autograd function
// that computes in float32 in every region. Prints the dtypes of results and gradients.
#include <iostream>

#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <mezzo/mezzo.h>

namespace amp = mezzo::amp;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

static Tensor scaled_mm(const Tensor& x, const Tensor& w, double scale) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("custom_op::scaled_mm", "")
                             .typed<Tensor(const Tensor&, const Tensor&, double)>();
  return op.call(x, w, scale);
}

struct ScaledMm : torch::autograd::Function<ScaledMm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& w, double scale) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    context->save_for_backward({x, w});
    context->saved_data["scale"] = scale;
    return scaled_mm(x, w, scale);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const double scale = context->saved_data["scale"].toDouble();
    return {scaled_mm(grads[0], saved[1].t(), scale), scaled_mm(saved[0].t(), grads[0], scale), {}};
  }
};

// The rule: cast to the region's dtype, then call again below autocast. Autograd lies below too and
// records the casts. cached_cast casts only tensors of the device type in its argument.
template <c10::DeviceType kDevice>
static Tensor scaled_mm_autocast(const Tensor& x, const Tensor& w, double scale) {
  const c10::impl::ExcludeDispatchKeyGuard below_autocast(
      at::autocast::get_autocast_dispatch_key_from_device_type(kDevice));
  const at::ScalarType dtype = at::autocast::get_autocast_dtype(kDevice);
  return scaled_mm(at::autocast::cached_cast(dtype, x, kDevice),
                   at::autocast::cached_cast(dtype, w, kDevice), scale);
}

TORCH_LIBRARY(custom_op, m) {
  m.def("scaled_mm(Tensor x, Tensor w, float scale) -> Tensor");
  const auto kernel = [](const Tensor& x, const Tensor& w, double s) { return x.mm(w).mul_(s); };
  m.impl("scaled_mm", c10::DispatchKey::CompositeExplicitAutograd, kernel);  // CPU and CUDA
  m.impl("scaled_mm", c10::DispatchKey::Autograd,
         [](const Tensor& x, const Tensor& w, double s) { return ScaledMm::apply(x, w, s); });
  m.impl("scaled_mm", c10::DispatchKey::AutocastCPU, &scaled_mm_autocast<at::kCPU>);
  m.impl("scaled_mm", c10::DispatchKey::Autocast, &scaled_mm_autocast<at::kCUDA>);  // of CUDA
}

struct Exp : torch::autograd::Function<Exp> {  // would overflow in float16 from 11.1 on
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    return amp::custom_forward(
        context, {.device = x.device().type(), .cast_inputs = torch::kFloat},
        [&](const Tensor& in_float32) {
          context->save_for_backward({in_float32});
          return in_float32.exp();
        },
        x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    return amp::custom_backward(
        context, [&] { return variable_list{grads[0] * context->get_saved_variables()[0].exp()}; });
  }
};

int main() {
  const torch::Device device = mezzo::default_device();
  const Tensor x = torch::full({4, 4}, 2.0, device), w = torch::eye(4, device).requires_grad_();
  Tensor product, result;
  {
    const amp::Autocast autocast(device.type(), torch::kHalf);
    product = scaled_mm(x, w, /*scale=*/6.0);
    result = Exp::apply(product);
  }
  (result * 0x1p-20).sum().backward();
  std::cout << "product " << product.dtype() << " exp " << result.dtype() << " up to "
            << result.max().item<float>() << " gradient " << w.grad().dtype() << '\n';
}
