// What the activation between the layers of a GAT keeps for the backward.
#include <c10/util/intrusive_ptr.h>

#include "mezzo/nn/model/model.h"

#include "support/tensors.h"

namespace mezzo::test {
namespace {

nn::Activation gat_activation() {
  const nn::Model model(2, 2, {.kind = nn::ModelKind::kGat, .hidden_features = 2});
  return model->options.activation;
}

TEST(ModelActivation, of_gat_is_elu_with_its_gradient) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor x = on_device(at::linspace(-20, 5, 400, at::kDouble)).to(dtype);
    const at::Tensor upstream = uniform({400}, dtype, 3);
    const at::Tensor ours = x.clone().requires_grad_(), theirs = x.clone().requires_grad_();
    const at::Tensor result = gat_activation()(ours), expected = at::elu(theirs);
    EXPECT_TRUE(result.equal(expected));
    result.backward(upstream);
    expected.backward(upstream);
    // 1 + (exp(x) - 1) instead of exp(x).
    const double bound = 4 * (dtype == at::kDouble ? 0x1p-53 : 0x1p-24);
    EXPECT_LE((ours.grad() - theirs.grad()).abs().max().item<double>(), bound);
  }
}

TEST(ModelActivation, of_gat_keeps_its_result_and_not_its_argument) {
  const at::Tensor leaf = uniform({5, 3}, at::kFloat, 4).requires_grad_();
  at::Tensor argument = leaf + 1;
  const c10::weak_intrusive_ptr<at::TensorImpl> seen(argument.getIntrusivePtr());
  const at::Tensor result = gat_activation()(argument);
  argument.reset();
  EXPECT_TRUE(seen.expired());
  result.sum().backward();
  EXPECT_TRUE(leaf.grad().defined());
}

}  // namespace
}  // namespace mezzo::test
