#include "mezzo/dist/sync_batch_norm.h"

#include <ATen/core/grad_mode.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/dist/data_parallel.h"
#include "mezzo/graph/topology.h"
#include "mezzo/nn/model/model.h"

#include "dist/processes.h"
#include "support/tensors.h"
#include "support/tolerance.h"

namespace mezzo::dist::sync_batch_norm_test {
namespace {

/// Float64 batch normalization over the rows of all ranks.
struct JoinedNormalization {
  at::Tensor x, grad, weight, bias;
  at::Tensor running_mean = at::zeros({3}, at::kDouble);
  at::Tensor running_var = at::ones({3}, at::kDouble);

  explicit JoinedNormalization(std::int64_t rows)
      : x(at::rand({rows, 3}, at::kDouble) * 4 + 100),
        grad(at::rand({rows, 3}, at::kDouble) - 0.5),
        weight((at::rand({3}, at::kDouble) + 0.5).requires_grad_()),
        bias(at::rand({3}, at::kDouble).requires_grad_()) {
    x.requires_grad_();
  }

  at::Tensor forward() {
    return at::batch_norm(x, weight, bias, running_mean, running_var, /*training=*/true, 0.1, 1e-5,
                          /*cudnn_enabled=*/false);
  }
};

/// All sums have at most `rows` terms, bounded by the largest one. Rows have mean 100 and deviation
/// 1: the mean's error counts a hundredfold, its square not at all.
SumBound normalization_bound(const at::Tensor& expected, std::int64_t rows) {
  const double largest = expected.detach().abs().max().item<double>() + 1;
  return {.abs_sum = at::full_like(expected.detach(), largest),
          .terms = 100.0 * 16 * static_cast<double>(rows),
          .storage = at::kDouble};
}

TEST(SyncBatchNorm, equals_batch_normalization_of_the_joined_rows) {
  on_ranks(3, [](ProcessGroup& group) {
    const std::vector<std::int64_t> counts = {3, 0, 6}, begins = {0, 3, 3};
    const auto rank = static_cast<std::size_t>(group.rank());
    at::manual_seed(11);
    JoinedNormalization joined(9);
    SyncBatchNorm1d norm(SyncBatchNorm1dOptions{.num_features = 3}, group);
    norm->to(at::kDouble);
    {
      const at::NoGradGuard no_grad;
      norm->weight.copy_(joined.weight);
      norm->bias.copy_(joined.bias);
    }
    const auto own = [&](const at::Tensor& all) {
      return all.detach().narrow(0, begins[rank], counts[rank]);
    };
    const auto agrees = [&](const at::Tensor& got, const at::Tensor& all) {
      const at::Tensor part = all.size(0) == 9 ? own(all) : all.detach();
      const SumBound whole = normalization_bound(all, 9);
      require(near(got, part,
                   {.abs_sum = whole.abs_sum.narrow(0, 0, part.size(0)),
                    .terms = whole.terms,
                    .storage = whole.storage}));
    };
    const at::Tensor x = own(joined.x).clone().requires_grad_();
    const at::Tensor expected = joined.forward(), got = norm->forward(x);
    agrees(got, expected);
    expected.backward(joined.grad);
    got.backward(own(joined.grad));
    agrees(x.grad(), joined.x.grad());
    all_reduce_gradients(norm->parameters(), group, {.op = ReduceOp::kSum});
    agrees(norm->weight.grad(), joined.weight.grad());
    agrees(norm->bias.grad(), joined.bias.grad());
    agrees(norm->running_mean, joined.running_mean);
    agrees(norm->running_var, joined.running_var);
    require(norm->num_batches_tracked.item<std::int64_t>() == 1, "one batch");

    norm->eval();
    const at::Tensor evaluated =
        at::batch_norm(joined.x, joined.weight, joined.bias, joined.running_mean,
                       joined.running_var, /*training=*/false, 0.1, 1e-5, false);
    agrees(norm->forward(x), evaluated);
  });
}

TEST(SyncBatchNorm, rows_of_16_bits_keep_their_dtype_and_are_rounded_once) {
  on_ranks(2, [](ProcessGroup& group) {
    SyncBatchNorm1d norm(SyncBatchNorm1dOptions{.num_features = 1}, group);
    // rows -1 and 1 on rank 0, -3 and 3 on rank 1: mean 0, variance 5
    const double size = group.rank() == 0 ? 1 : 3;
    const at::Tensor x = numbers({-size, size}, at::kBFloat16).view({2, 1});
    const at::Tensor got = norm->forward(x);
    require(got.scalar_type() == at::kBFloat16, "bfloat16 rows");
    const at::Tensor expected = x.to(at::kDouble) / std::sqrt(5 + 1e-5);
    require(near(got, expected, sum_bound(expected.abs(), 8, at::kBFloat16)));
  });
}

TEST(SyncBatchNorm, one_row_of_all_ranks_together_is_refused_on_every_rank) {
  on_ranks(2, [](ProcessGroup& group) {
    SyncBatchNorm1d norm(SyncBatchNorm1dOptions{.num_features = 2}, group);
    bool refused = false;
    try {
      norm->forward(at::ones({group.rank(), 2}));
    } catch (const InvalidArgument&) {
      refused = true;
    }
    require(refused, "an error");
  });
}

/// A topology without edges, for row-wise models.
Topology edgeless(std::int64_t nodes) {
  const at::Tensor none = at::empty({0}, at::kLong);
  return Topology::from_coo(none, none, nodes, nodes);
}

/// Ignores edges; every call returns an equal model.
nn::Model row_model(std::int64_t num_layers, const nn::NormalizationFactory& batch_normalization) {
  at::manual_seed(7);
  return nn::Model(4, 2,
                   {.kind = nn::ModelKind::kMlp,
                    .hidden_features = 5,
                    .num_layers = num_layers,
                    .dropout = 0,
                    .normalization = nn::Normalization::kBatch,
                    .batch_normalization = batch_normalization,
                    .skip = num_layers > 2});
}

TEST(SyncBatchNorm, a_model_over_ranks_equals_one_on_the_joined_rows) {
  on_ranks(2, [](ProcessGroup& group) {
    const bool first = group.rank() == 0;
    const std::int64_t rows = 8, begin = first ? 0 : 3, count = first ? 3 : 5;
    const auto own = [&](const at::Tensor& all) { return all.detach().narrow(0, begin, count); };
    const auto agrees = [&](const at::Tensor& got, const at::Tensor& expected) {
      require(near(got, expected.detach(), normalization_bound(expected, rows)));
    };
    nn::Model alone = row_model(3, {}), shared = row_model(3, sync_batch_normalization(group));
    require(shared->named_parameters().keys() == alone->named_parameters().keys() &&
                shared->named_buffers().keys() == alone->named_buffers().keys(),
            "the same names");
    alone->to(at::kDouble);
    shared->to(at::kDouble);
    const at::Tensor x = at::rand({rows, 4}, at::kDouble) - 0.5;
    const at::Tensor grad = at::rand({rows, 2}, at::kDouble) - 0.5;

    const at::Tensor expected = alone->forward(edgeless(rows), x);
    const at::Tensor got = shared->forward(edgeless(count), own(x));
    agrees(got, own(expected));
    expected.backward(grad);
    got.backward(own(grad));
    all_reduce_gradients(shared->parameters(), group, {.op = ReduceOp::kSum});
    const std::vector<at::Tensor> parameters = alone->parameters(), buffers = alone->buffers();
    const std::vector<at::Tensor> own_parameters = shared->parameters();
    const std::vector<at::Tensor> own_buffers = shared->buffers();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      agrees(own_parameters[i].grad(), parameters[i].grad());
    }
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      agrees(own_buffers[i], buffers[i]);
      const at::Tensor all = group.all_gather(own_buffers[i]);
      require(at::equal(all, own_buffers[i].expand_as(all)), "the same bits on all ranks");
    }

    alone->eval();
    shared->eval();
    const at::Tensor evaluated = alone->forward(edgeless(rows), x);
    // A rank may evaluate while the other does not.
    if (first) agrees(shared->forward(edgeless(rows), x), evaluated);
  });
}

TEST(SyncBatchNorm, statistics_within_autocast_are_of_float32) {
  on_ranks(2, [](ProcessGroup& group) {
    nn::Model model = row_model(2, sync_batch_normalization(group));
    const at::Tensor weight = integers({5, 4}, at::kFloat, 1);
    const at::Tensor x = integers({10, 4}, at::kFloat, 2);
    {
      const at::NoGradGuard no_grad;
      model->named_parameters()["layer0.weight"].copy_(weight);
      model->named_parameters()["layer0.bias"].zero_();
    }
    at::Tensor logits;
    {
      const amp::Autocast region(at::kCPU, at::kBFloat16);
      logits = model->forward(edgeless(5), x.narrow(0, 5 * group.rank(), 5));
    }
    require(logits.scalar_type() == at::kBFloat16, "bfloat16 logits");
    // Normalization inputs are integers of at most 64, exact in bfloat16.
    const at::Tensor rows = at::matmul(x, weight.t()).to(at::kDouble), mean = rows.mean(0);
    const at::Tensor variance = (rows - mean).square().sum(0) / 9;
    const auto agrees = [&](const std::string& name, const at::Tensor& expected) {
      const at::Tensor got = model->named_buffers()[name];
      require(near(got, expected, sum_bound(expected.abs() + 1, 64, at::kFloat)));
    };
    agrees("norm0.running_mean", 0.1 * mean);
    agrees("norm0.running_var", 0.9 + 0.1 * variance);

    logits.to(at::kFloat).square().sum().backward();
    for (const at::Tensor& parameter : model->parameters()) {
      require(parameter.grad().defined() && parameter.grad().isfinite().all().item<bool>(),
              "finite gradients");
    }
  });
}

TEST(SyncBatchNorm, wrong_arguments_are_refused) {
  const ProcessGroup alone;
  EXPECT_THROW(SyncBatchNorm1d(SyncBatchNorm1dOptions{}, alone), InvalidArgument);
  EXPECT_THROW(SyncBatchNorm1d(SyncBatchNorm1dOptions{.num_features = 2, .eps = 0}, alone),
               InvalidArgument);
  EXPECT_THROW(SyncBatchNorm1d(SyncBatchNorm1dOptions{.num_features = 2, .momentum = 2}, alone),
               InvalidArgument);
  SyncBatchNorm1d norm(SyncBatchNorm1dOptions{.num_features = 2}, alone);
  EXPECT_THROW(norm->forward(at::ones({4, 3})), InvalidArgument);
  EXPECT_THROW(norm->forward(at::ones({4, 2}, at::kLong)), InvalidArgument);
}

}  // namespace
}  // namespace mezzo::dist::sync_batch_norm_test
