#include "mezzo/nn/model/mlp.h"

#include "support/gradcheck.h"
#include "support/nn_reference.h"

namespace mezzo::test::mlp_test {
namespace {

using nn::MLP;
using nn::MLPOptions;

TEST(MLP, is_linear_layers_with_relu_between) {
  for (const std::int64_t num_layers : {1, 3}) {
    MLP mlp(4, 2, {.hidden_features = 5, .num_layers = num_layers, .dropout = 0});
    randomise(*mlp, at::kDouble);
    const at::Tensor x = uniform({7, 4}, at::kDouble, 1);
    const auto parameters = mlp->named_parameters();
    at::Tensor expected = x;
    for (std::int64_t i = 0; i < num_layers; ++i) {
      const std::string name = "layer" + std::to_string(i);
      if (i > 0) expected = expected.clamp_min(0);
      expected = dense_linear(expected, parameters[name + ".weight"], parameters[name + ".bias"],
                              Numbers::kGiven);
    }
    EXPECT_TRUE(near_terms(mlp(x), expected, 5 * 6 * 6));
  }
}

TEST(MLP, normalizes_hidden_layers_before_the_activation) {
  const auto negate = [](const at::Tensor& h) { return -h; };
  MLP mlp(4, 2,
          {.hidden_features = 5,
           .dropout = 0,
           .activation = negate,
           .normalization = nn::Normalization::kLayer});
  randomise(*mlp, at::kDouble);
  const auto p = mlp->named_parameters();
  const at::Tensor x = uniform({7, 4}, at::kDouble, 2);
  at::Tensor h = dense_linear(x, p["layer0.weight"], p["layer0.bias"], Numbers::kGiven);
  h = (h - h.mean(1, true)) / (h.var(1, /*unbiased=*/false, /*keepdim=*/true) + 1e-5).sqrt();
  h = -(h * p["norm0.weight"] + p["norm0.bias"]);
  const at::Tensor expected =
      dense_linear(h, p["layer1.weight"], p["layer1.bias"], Numbers::kGiven);
  // The smallest variance of a row amplifies the errors of its differences from the mean.
  EXPECT_TRUE(near_terms(mlp(x), expected, 1000));
}

TEST(MLP, gradients_agree_with_differences) {
  MLP mlp(3, 2, {.hidden_features = 4, .num_layers = 3, .dropout = 0});
  randomise(*mlp, at::kDouble);
  const auto function = [&](const std::vector<at::Tensor>& inputs) { return mlp(inputs[0]); };
  EXPECT_TRUE(gradcheck(function, {uniform({5, 3}, at::kDouble, 3)}));
}

TEST(MLP, sparse_rows_give_the_values_of_dense_ones) {
  MLP mlp(6, 3, {.dropout = 0});
  randomise(*mlp, at::kDouble);
  const at::Tensor x = sparse_numbers({9, 6}, 4);
  EXPECT_TRUE(near_terms(mlp(x.to_sparse_csr()), mlp(x), 16 * 7));
}

TEST(MLP, drops_features_while_training_only) {
  MLP dropping(6, 3);
  MLP plain(6, 3, {.dropout = 0});
  randomise(*dropping, at::kDouble);
  randomise(*plain, at::kDouble);
  const at::Tensor x = uniform({9, 6}, at::kDouble, 5);
  EXPECT_FALSE(exact(dropping(x), plain(x)));
  dropping->eval();
  EXPECT_TRUE(exact(dropping(x), plain(x)));
}

TEST(MLP, keeps_sixteen_bit_rows) {
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    MLP mlp(6, 3, {.normalization = nn::Normalization::kLayer});
    mlp->to(test_device(), dtype.scalar);
    EXPECT_EQ(mlp(uniform({9, 6}, dtype.scalar, 6)).scalar_type(), dtype.scalar);
  }
}

TEST(MLP, runs_without_rows) {
  MLP mlp = placed(MLP(6, 3));
  EXPECT_EQ(mlp(at::zeros({0, 6}, on_device())).sizes(), at::IntArrayRef({0, 3}));
}

TEST(MLP, wrong_arguments_are_errors_that_name_them) {
  const auto expect_option_error = [](const MLPOptions& options, const std::string& name) {
    EXPECT_ERROR(name, MLP mlp(options));
  };
  expect_option_error({.in_features = 0, .out_features = 2}, "in_features");
  expect_option_error({.in_features = 2, .hidden_features = 0, .out_features = 2},
                      "hidden_features");
  expect_option_error({.in_features = 2, .out_features = 0}, "out_features");
  expect_option_error({.in_features = 2, .out_features = 2, .num_layers = 0}, "num_layers");
  expect_option_error({.in_features = 2, .out_features = 2, .dropout = 1}, "dropout");
  MLP mlp(6, 3);
  for (const at::Tensor& x :
       {at::zeros({4, 5}, on_device()), at::zeros({6}, on_device()), at::Tensor()}) {
    EXPECT_ERROR("MLP", mlp(x));
  }
}

}  // namespace
}  // namespace mezzo::test::mlp_test
