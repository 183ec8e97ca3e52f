#include "mezzo/dist/sync_batch_norm.h"

#include <ostream>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/group/collective_check.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/runtime/second_derivative.h"

namespace mezzo::dist {
namespace {

/// Statistics over the rows of all ranks; the same on each. mean, (biased) variance: [features]
/// float64.
struct JoinedStatistics {
  at::Tensor mean, variance;
  double rows = 0;
};

/// Merges the means of the ranks, which keeps the variance of rows far from 0 exact. rows: [n,
/// features].
JoinedStatistics joined_statistics(const at::Tensor& rows, const ProcessGroup& group) {
  const std::int64_t count = rows.size(0), features = rows.size(1);
  at::Tensor own = at::zeros({2 * features + 1}, rows.options().dtype(at::kDouble));
  own.select(0, 2 * features).fill_(count);
  if (count > 0) {
    const at::Tensor mean = rows.mean(0);
    own.narrow(0, 0, features).copy_(mean);
    own.narrow(0, features, features).copy_((rows - mean).square_().sum(0));
  }
  const at::Tensor all = group.all_gather(own);
  const at::Tensor means = all.narrow(1, 0, features);
  const at::Tensor squares = all.narrow(1, features, features);
  const at::Tensor counts = all.narrow(1, 2 * features, 1);
  JoinedStatistics joined;
  joined.rows = counts.sum().item<double>();
  MEZZO_CHECK(joined.rows >= 2,
              "SyncBatchNorm1d: expected at least 2 rows of all ranks together, got {}",
              joined.rows);
  joined.mean = (counts * means).sum(0) / joined.rows;
  joined.variance = (squares + counts * (means - joined.mean).square()).sum(0) / joined.rows;
  return joined;
}

/// Keeps the group alive in an autograd graph.
struct GroupHolder : torch::CustomClassHolder {
  explicit GroupHolder(ProcessGroup held) : group(std::move(held)) {}
  ProcessGroup group;
};

struct SyncNormalize : torch::autograd::Function<SyncNormalize> {
  /// mean, inverse_std: [features] in the accumulator dtype.
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& mean, const at::Tensor& inverse_std, double rows,
                            const c10::intrusive_ptr<GroupHolder>& holder) {
    ctx->save_for_backward({x, weight, mean, inverse_std});
    ctx->saved_data["rows"] = rows;
    ctx->saved_data["group"] =
        c10::IValue::make_capsule(c10::intrusive_ptr<torch::CustomClassHolder>(holder));
    const at::Tensor normal = (x.to(mean.scalar_type()) - mean).mul_(inverse_std);
    return normal.mul_(weight).add_(bias).to(x.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    refuse_second_derivative("SyncBatchNorm1d");
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &inverse_std = saved[3];
    const at::ScalarType statistics_dtype = mean.scalar_type();
    const auto capsule = ctx->saved_data["group"].toCapsule();
    const ProcessGroup& group = static_cast<const GroupHolder&>(*capsule).group;
    const at::Tensor normal = (x.to(statistics_dtype) - mean).mul_(inverse_std);
    const at::Tensor grad = grads[0].to(statistics_dtype);
    const at::Tensor grad_sum = grad.sum(0), normal_sum = (grad * normal).sum(0);
    const at::Tensor means = at::stack({grad_sum, normal_sum});
    group.all_reduce(means, ReduceOp::kSum);
    means.div_(ctx->saved_data["rows"].toDouble());
    const at::Tensor x_grad =
        (grad - means[0]).sub_(normal * means[1]).mul_(inverse_std * weight).to(x.scalar_type());
    return {
        x_grad, normal_sum.to(weight.scalar_type()), grad_sum.to(weight.scalar_type()), {}, {}, {},
        {}};
  }
};

}  // namespace

SyncBatchNorm1dImpl::SyncBatchNorm1dImpl(SyncBatchNorm1dOptions layer_options, ProcessGroup group)
    : options(layer_options), group_(std::move(group)) {
  reset();
}

void SyncBatchNorm1dImpl::reset() {
  MEZZO_CHECK(options.num_features >= 1,
              "SyncBatchNorm1d: expected num_features of at least 1, got {}", options.num_features);
  MEZZO_CHECK(options.eps > 0, "SyncBatchNorm1d: expected eps above 0, got {}", options.eps);
  MEZZO_CHECK(options.momentum >= 0 && options.momentum <= 1,
              "SyncBatchNorm1d: expected momentum in [0, 1], got {}", options.momentum);
  weight = register_parameter("weight", at::ones({options.num_features}));
  bias = register_parameter("bias", at::zeros({options.num_features}));
  running_mean = register_buffer("running_mean", at::zeros({options.num_features}));
  running_var = register_buffer("running_var", at::ones({options.num_features}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

void SyncBatchNorm1dImpl::pretty_print(std::ostream& stream) const {
  stream << fmt::format("mezzo::dist::SyncBatchNorm1d(num_features={}, eps={}, momentum={})",
                        options.num_features, options.eps, options.momentum);
}

void SyncBatchNorm1dImpl::reset_parameters() {
  const at::NoGradGuard no_grad;
  weight.fill_(1);
  bias.zero_();
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}

at::Tensor SyncBatchNorm1dImpl::forward(const at::Tensor& x) {
  const auto check = [&] {
    MEZZO_CHECK(x.defined() && x.dim() == 2 && x.size(1) == options.num_features &&
                    at::isFloatingType(x.scalar_type()),
                "SyncBatchNorm1d: expected x as floating [n, {}], got {}", options.num_features,
                mezzo::detail::describe(x));
  };
  if (is_training()) {
    detail::check_arguments(*group_.state(), "SyncBatchNorm1d", check);
  } else {
    check();
  }
  const at::ScalarType statistics_dtype =
      x.scalar_type() == at::kDouble || weight.scalar_type() == at::kDouble ? at::kDouble
                                                                            : at::kFloat;
  if (!is_training()) {
    const at::Tensor inverse_std = (running_var.to(statistics_dtype) + options.eps).rsqrt();
    const at::Tensor normal = (x.to(statistics_dtype) - running_mean) * inverse_std;
    return (normal * weight + bias).to(x.scalar_type());
  }
  JoinedStatistics joined;
  {
    const at::NoGradGuard no_grad;
    joined = joined_statistics(x.to(statistics_dtype), group_);
    const at::Tensor unbiased = joined.variance * (joined.rows / (joined.rows - 1));
    running_mean.lerp_(joined.mean.to(running_mean.scalar_type()), options.momentum);
    running_var.lerp_(unbiased.to(running_var.scalar_type()), options.momentum);
    num_batches_tracked.add_(1);
  }
  const at::Tensor inverse_std = (joined.variance + options.eps).rsqrt();
  return SyncNormalize::apply(x, weight, bias, joined.mean.to(statistics_dtype),
                              inverse_std.to(statistics_dtype), joined.rows,
                              c10::make_intrusive<GroupHolder>(group_));
}

nn::NormalizationFactory sync_batch_normalization(ProcessGroup group) {
  return [group = std::move(group)](std::int64_t width) -> nn::NormalizationModule {
    const SyncBatchNorm1dOptions options{.num_features = width};
    SyncBatchNorm1d norm(options, group);
    return {norm.ptr(), [norm](const at::Tensor& h) mutable { return norm(h); }};
  };
}

}  // namespace mezzo::dist
