#include <exception>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/data_parallel.h"
#include "mezzo/dist/group/engine.h"
#include "mezzo/dist/rendezvous/failure.h"
#include "mezzo/runtime/sixteen_bits.h"

namespace mezzo::dist {
namespace {

constexpr std::int64_t kBroadcastBytes = std::int64_t{25} << 20;

/// Tensors of one dtype and device that are sent together.
struct Bucket {
  std::vector<at::Tensor> tensors = {};
  at::ScalarType traffic = at::kFloat;
  std::int64_t numel = 0;

  bool has_room_for(const at::Tensor& tensor, std::int64_t bucket_bytes) const {
    const auto bytes_each = static_cast<std::int64_t>(c10::elementSize(traffic));
    return (numel + tensor.numel()) * bytes_each <= bucket_bytes;
  }
};

/// Groups tensors in order; a tensor of another dtype or device does not end a bucket. `traffic`:
/// maps a tensor to its dtype on the network.
template <class Traffic>
std::vector<Bucket> buckets_of(const std::vector<at::Tensor>& tensors, std::int64_t bucket_bytes,
                               Traffic traffic) {
  std::vector<Bucket> full, open;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const at::ScalarType travels = traffic(tensor);
    Bucket* bucket = nullptr;
    for (Bucket& each : open) {
      const at::Tensor& first = each.tensors.front();
      if (first.scalar_type() != tensor.scalar_type() || first.device() != tensor.device() ||
          each.traffic != travels) {
        continue;
      }
      bucket = &each;
      if (!each.has_room_for(tensor, bucket_bytes)) {
        full.push_back(std::move(each));
        each = Bucket{.traffic = travels};
      }
      break;
    }
    if (bucket == nullptr) {
      bucket = &open.emplace_back(Bucket{.traffic = travels});
    }
    bucket->tensors.push_back(tensor);
    bucket->numel += tensor.numel();
  }
  for (Bucket& each : open) full.push_back(std::move(each));
  return full;
}

at::Tensor packed(const Bucket& bucket) {
  at::Tensor flat =
      at::empty({bucket.numel}, bucket.tensors.front().options().dtype(bucket.traffic));
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : bucket.tensors) {
    flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    offset += tensor.numel();
  }
  return flat;
}

void unpack(const at::Tensor& flat, const Bucket& bucket) {
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : bucket.tensors) {
    tensor.copy_(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

/// Each tensor of the module once, ordered by name.
std::vector<at::Tensor> tensors_of(torch::nn::Module& module, std::string& description) {
  std::vector<at::Tensor> tensors;
  std::unordered_set<const c10::TensorImpl*> seen;
  const auto add = [&](const auto& named) {
    for (const auto& item : named) {
      const at::Tensor& tensor = item.value();
      if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      MEZZO_CHECK(tensor.layout() == at::kStrided,
                  "dist::broadcast_parameters: expected strided parameters and buffers, got {} as "
                  "{}",
                  item.key(), c10::str(tensor.layout()));
      tensors.push_back(tensor);
      description += fmt::format("{} {} [{}]\n", item.key(), c10::toString(tensor.scalar_type()),
                                 fmt::join(tensor.sizes(), ", "));
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return tensors;
}

/// Gradients to send: first a table of the parameters with a gradient here, then one gradient per
/// parameter (zeros if this rank has none). One exchange sends both.
class Gradients {
 public:
  Gradients(const std::vector<at::Tensor>& parameters, const at::Tensor& beside)
      : parameters_(parameters), num_sums_(beside.defined() ? 2 : 1) {
    const auto count = static_cast<std::int64_t>(parameters.size());
    const at::Tensor table = at::zeros({kRows, count}, at::kFloat);
    auto rows = table.accessor<float, 2>();
    std::unordered_set<const c10::TensorImpl*> seen;
    for (std::int64_t i = 0; i < count; ++i) {
      const at::Tensor& parameter = parameters[static_cast<std::size_t>(i)];
      const at::Tensor& gradient = parameter.grad();
      const bool first = seen.insert(parameter.unsafeGetTensorImpl()).second;
      const bool defined = first && gradient.defined();
      const bool usable = defined && gradient.layout() == at::kStrided &&
                          gradient.scalar_type() == parameter.scalar_type();
      rows[kPresent][i] = usable ? 1 : 0;
      rows[kUnusable][i] = defined && !usable ? 1 : 0;
      if (!first) continue;
      tensors_.push_back(usable ? gradient : at::zeros_like(parameter));
      numbers_.push_back(static_cast<std::size_t>(i));
    }
    if (beside.defined()) tensors_.insert(tensors_.begin(), beside);
    tensors_.insert(tensors_.begin(), table.to(parameters.front().device()));
  }

  const std::vector<at::Tensor>& tensors() const { return tensors_; }

  bool is_sum(const at::Tensor& tensor) const {
    return tensor.is_same(tensors_[0]) || (num_sums_ == 2 && tensor.is_same(tensors_[1]));
  }

  /// Number of values at the front of the bucket that are always summed, never averaged.
  std::int64_t numel_of_sums(const Bucket& bucket) const {
    std::int64_t numel = 0;
    for (const at::Tensor& tensor : bucket.tensors) {
      if (is_sum(tensor)) numel += tensor.numel();
    }
    return numel;
  }

  /// After the exchange: defines gradients that only other ranks had.
  void hand_out() const {
    const at::Tensor table = tensors_.front().cpu();
    const auto rows = table.accessor<float, 2>();
    for (std::size_t k = 0; k < numbers_.size(); ++k) {
      const std::size_t i = numbers_[k];
      const auto column = static_cast<std::int64_t>(i);
      MEZZO_CHECK(
          rows[kUnusable][column] == 0,
          "dist::all_reduce_gradients: expected dense gradients of their parameters' dtypes, got a "
          "sparse one or one of another dtype for parameter {} ({} [{}]) on some rank",
          i, c10::toString(parameters_[i].scalar_type()), fmt::join(parameters_[i].sizes(), ", "));
      if (rows[kPresent][column] > 0) parameters_[i].mutable_grad() = tensors_[num_sums_ + k];
    }
  }

 private:
  enum Row : std::int64_t { kPresent, kUnusable, kRows };

  const std::vector<at::Tensor>& parameters_;
  std::size_t num_sums_;              ///< the table and `beside`
  std::vector<at::Tensor> tensors_;   ///< the sums, then one tensor per entry of numbers_
  std::vector<std::size_t> numbers_;  ///< indices of the parameters, without duplicates
};

/// A bucket with a pending reduction.
struct Journey {
  Bucket bucket;
  at::Tensor flat;
  Work work;
};

}  // namespace

at::ScalarType detail::traffic_dtype(GradientTraffic traffic, at::ScalarType dtype) {
  if (dtype != at::kFloat && !is_16_bit(dtype)) return dtype;
  return traffic == GradientTraffic::kBFloat16 && dtype != at::kHalf ? at::kBFloat16 : at::kFloat;
}

at::Tensor detail::divided(const at::Tensor& sums, std::int64_t divisor) {
  at::Tensor quotient = sums.scalar_type() == at::kBFloat16 ? sums.to(at::kFloat) : sums;
  if (divisor != 1) quotient.div_(divisor);
  return quotient;
}

void broadcast_parameters(torch::nn::Module& module, const ProcessGroup& group) {
  std::string description;
  const std::vector<at::Tensor> tensors = tensors_of(module, description);
  if (group.world_size() == 1) return;
  const std::vector<std::int64_t> others = group.ranks_that_differ(description);
  MEZZO_CHECK(
      others.empty(),
      "dist::broadcast_parameters: expected the same names, shapes and dtypes of parameters "
      "and buffers on all ranks, got others than rank 0's on ranks {}",
      fmt::join(others, ", "));
  const at::NoGradGuard no_grad;
  for (const Bucket& bucket : buckets_of(tensors, kBroadcastBytes, [](const at::Tensor& tensor) {
         return tensor.scalar_type();
       })) {
    const at::Tensor flat = packed(bucket);
    group.broadcast(flat);
    if (group.rank() != 0) unpack(flat, bucket);
  }
}

void all_reduce_gradients(const std::vector<at::Tensor>& parameters, const ProcessGroup& group,
                          const GradientOptions& options) {
  MEZZO_CHECK(options.op == ReduceOp::kSum || options.op == ReduceOp::kMean,
              "dist::all_reduce_gradients: expected op kSum or kMean, got another one");
  MEZZO_CHECK(options.bucket_bytes >= 1,
              "dist::all_reduce_gradients: expected bucket_bytes of at least 1, got {}",
              options.bucket_bytes);
  MEZZO_CHECK(!options.beside.defined() || options.beside.scalar_type() == at::kFloat,
              "dist::all_reduce_gradients: expected float32 numbers beside the gradients, got {}",
              c10::toString(options.beside.scalar_type()));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    MEZZO_CHECK(parameters[i].defined(),
                "dist::all_reduce_gradients: expected tensors, got an undefined one at {}", i);
  }
  if (group.world_size() == 1 || parameters.empty()) {
    if (options.meanwhile) options.meanwhile();
    return;
  }
  const bool had_grad = at::GradMode::is_enabled();
  const at::NoGradGuard no_grad;
  const std::int64_t divisor = options.op == ReduceOp::kMean ? group.world_size() : 1;
  std::optional<Journey> under_way;
  const Gradients gradients(parameters, options.beside);
  const auto traffic = [&](const at::Tensor& tensor) {
    // bfloat16 has too few bits for a count.
    if (gradients.is_sum(tensor)) return at::kFloat;
    return detail::traffic_dtype(options.traffic, tensor.scalar_type());
  };
  const auto arrive = [&](Journey& journey) {
    journey.work.wait();
    at::Tensor numbers = detail::divided(journey.flat, 1);
    const std::int64_t sums = gradients.numel_of_sums(journey.bucket);
    if (divisor != 1) numbers.narrow(0, sums, numbers.numel() - sums).div_(divisor);
    unpack(numbers, journey.bucket);
  };
  for (Bucket& bucket : buckets_of(gradients.tensors(), options.bucket_bytes, traffic)) {
    at::Tensor flat = packed(bucket);
    Work work = flat.scalar_type() == at::kBFloat16 ? detail::sum_in_own_dtype(group, flat)
                                                    : group.all_reduce_async(flat, ReduceOp::kSum);
    if (under_way) arrive(*under_way);
    under_way = Journey{std::move(bucket), std::move(flat), std::move(work)};
  }
  std::exception_ptr failure;
  if (options.meanwhile) {
    const at::AutoGradMode as_outside(had_grad);
    try {
      options.meanwhile();
    } catch (...) {
      failure = std::current_exception();
    }
  }
  try {
    if (under_way) arrive(*under_way);
    gradients.hand_out();
  } catch (...) {
    if (!failure) throw;
    detail::forget_failure_of_another();  // this rank has the cause
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace mezzo::dist
