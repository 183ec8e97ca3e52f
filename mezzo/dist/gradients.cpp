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
#include "mezzo/dist/engine.h"

namespace mezzo::dist {
namespace {

constexpr std::int64_t kBroadcastBytes = std::int64_t{25} << 20;

/// Tensors of one dtype and device that travel together.
struct Bucket {
  std::vector<at::Tensor> tensors = {};
  at::ScalarType traffic = at::kFloat;
  std::int64_t numel = 0;

  bool has_room_for(const at::Tensor& tensor, std::int64_t bucket_bytes) const {
    const auto bytes_each = static_cast<std::int64_t>(c10::elementSize(traffic));
    return (numel + tensor.numel()) * bytes_each <= bucket_bytes;
  }
};

/// The tensors in their order, except that one of another dtype or device does not end a bucket.
/// `traffic`: dtype of a tensor -> dtype that travels.
template <class Traffic>
std::vector<Bucket> buckets_of(const std::vector<at::Tensor>& tensors, std::int64_t bucket_bytes,
                               Traffic traffic) {
  std::vector<Bucket> full, open;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    Bucket* bucket = nullptr;
    for (Bucket& each : open) {
      const at::Tensor& first = each.tensors.front();
      if (first.scalar_type() != tensor.scalar_type() || first.device() != tensor.device())
        continue;
      bucket = &each;
      if (!each.has_room_for(tensor, bucket_bytes)) {
        full.push_back(std::move(each));
        each = Bucket{.traffic = traffic(tensor.scalar_type())};
      }
      break;
    }
    if (bucket == nullptr) {
      bucket = &open.emplace_back(Bucket{.traffic = traffic(tensor.scalar_type())});
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

/// Each tensor of the module once, in the order of its names.
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

/// What a rank has of a parameter's gradient; the largest number wins.
enum Presence : std::int32_t { kAbsent = 0, kPresent = 1, kUnusable = 2 };

Presence presence_of(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return kAbsent;
  const bool usable =
      gradient.layout() == at::kStrided && gradient.scalar_type() == parameter.scalar_type();
  return usable ? kPresent : kUnusable;
}

/// The gradients that some rank has, in the order of the parameters, as zeros where this one has
/// none.
std::vector<at::Tensor> joined_gradients(const std::vector<at::Tensor>& parameters,
                                         const ProcessGroup& group) {
  std::vector<std::int32_t> own;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const at::Tensor& parameter : parameters) {
    const bool first = seen.insert(parameter.unsafeGetTensorImpl()).second;
    own.push_back(first ? presence_of(parameter) : kAbsent);
  }
  const at::Tensor presence = at::tensor(own, at::kInt).to(parameters.front().device());
  group.all_reduce(presence, ReduceOp::kMax);
  const at::Tensor joined = presence.cpu();
  const auto* state = joined.const_data_ptr<std::int32_t>();
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    MEZZO_CHECK(state[i] != kUnusable,
                "dist::all_reduce_gradients: expected dense gradients of their parameters' dtypes, "
                "got a sparse one or one of another dtype for parameter {} ({} [{}]) on some rank",
                i, c10::toString(parameters[i].scalar_type()),
                fmt::join(parameters[i].sizes(), ", "));
    if (state[i] == kAbsent) continue;
    at::Tensor& gradient = parameters[i].mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameters[i]);
    gradients.push_back(gradient);
  }
  return gradients;
}

/// A bucket on its way.
struct Journey {
  Bucket bucket;
  at::Tensor flat;
  Work work;
};

}  // namespace

at::ScalarType detail::traffic_dtype(GradientTraffic traffic, at::ScalarType dtype) {
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) return dtype;
  return traffic == GradientTraffic::kBFloat16 && dtype != at::kHalf ? at::kBFloat16 : at::kFloat;
}

at::Tensor detail::divided(const at::Tensor& sums, std::int64_t divisor) {
  at::Tensor wide = sums.scalar_type() == at::kBFloat16 ? sums.to(at::kFloat) : sums;
  if (divisor != 1) wide.div_(divisor);
  return wide;
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
  for (const Bucket& bucket :
       buckets_of(tensors, kBroadcastBytes, [](at::ScalarType dtype) { return dtype; })) {
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
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    MEZZO_CHECK(parameters[i].defined(),
                "dist::all_reduce_gradients: expected tensors, got an undefined one at {}", i);
  }
  if (group.world_size() == 1 || parameters.empty()) return;
  const at::NoGradGuard no_grad;
  const std::int64_t divisor = options.op == ReduceOp::kMean ? group.world_size() : 1;
  const auto traffic = [&](at::ScalarType dtype) {
    return detail::traffic_dtype(options.traffic, dtype);
  };
  const auto arrive = [divisor](Journey& journey) {
    journey.work.wait();
    unpack(detail::divided(journey.flat, divisor), journey.bucket);
  };
  std::optional<Journey> under_way;
  for (Bucket& bucket :
       buckets_of(joined_gradients(parameters, group), options.bucket_bytes, traffic)) {
    at::Tensor flat = packed(bucket);
    Work work = group.all_reduce_async(flat, ReduceOp::kSum);
    if (under_way) arrive(*under_way);
    under_way = Journey{std::move(bucket), std::move(flat), std::move(work)};
  }
  if (under_way) arrive(*under_way);
}

}  // namespace mezzo::dist
