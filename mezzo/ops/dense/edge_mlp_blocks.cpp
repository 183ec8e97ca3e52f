// The MLP on edges on the CPU, one block of edges at a time. Nothing of a block is kept: its
// backward computes it again, which is cheaper than to write and read it.
#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mezzo/kernels/backend.h"
#include "mezzo/ops/dense/edge_mlp.h"

namespace mezzo::detail {
namespace {

/// Blocks of a chunk. Between chunks, sums of nodes are added.
constexpr std::int64_t kBlocksOfChunk = 32;
/// Bytes of a block of rows: several fit into a level-2 cache.
constexpr std::int64_t kBlockBytes = 1 << 17;

struct Block {
  std::int64_t first, count;  ///< edges
  std::int64_t number;        ///< in its chunk

  at::Tensor of(const at::Tensor& rows) const { return rows.narrow(0, first, count); }
};

kernels::Ids ids_from(const at::Tensor& ids, std::int64_t first) {
  const auto bytes = static_cast<std::int64_t>(ids.element_size());
  return {static_cast<const char*>(ids.const_data_ptr()) + first * bytes,
          ids.scalar_type() == at::kLong};
}

template <class Args>
void run(const Args& args) {
  kernels::cpu_backend().run(args);
}

/// Partial sums [kBlocksOfChunk, ...] of a gradient: those of the blocks with one number are added.
class PartialSums {
 public:
  PartialSums(const at::Tensor& parameter, at::ScalarType type) : parameter_(parameter) {
    auto shape = parameter.sizes().vec();
    shape.insert(shape.begin(), kBlocksOfChunk);
    sums_ = at::zeros(shape, parameter.options().dtype(type));
  }
  at::Tensor of(const Block& block) const { return sums_.select(0, block.number); }
  at::Tensor total() const {
    at::Tensor sum = sums_.select(0, 0);
    for (std::int64_t i = 1; i < kBlocksOfChunk; ++i) sum = sum + sums_.select(0, i);
    return sum.to(parameter_.scalar_type());
  }

 private:
  at::Tensor parameter_, sums_;
};

class EdgeBlocks {
 public:
  explicit EdgeBlocks(const EdgeMlpInputs& in)
      : graph_(in.topology->value),
        type_(in.edge.scalar_type()),
        wide_(accumulator_of(type_)),
        norm_type_(in.norm_weight.scalar_type()),
        dtype_(dtype_of("edge_mlp", type_)),
        in_{in.topology,
            in.src.contiguous(),
            in.dst.contiguous(),
            in.edge.contiguous(),
            in.weight.contiguous(),
            in.hidden_weight,
            in.hidden_bias,
            in.out_weight.contiguous(),
            in.out_bias.contiguous(),
            in.norm_weight.to(wide_).contiguous(),
            in.norm_bias.to(wide_).contiguous()},
        hidden_(in.weight.size(0)),
        features_(in.edge.size(1)),
        layers_(in.hidden_weight ? in.hidden_weight->size(0) : 0) {
    const std::int64_t row_bytes = std::max<std::int64_t>({1, hidden_, features_}) *
                                   static_cast<std::int64_t>(in.edge.element_size());
    constexpr std::int64_t kLeastRows = 64, kMostRows = 4096;
    block_rows_ = std::clamp(kBlockBytes / row_bytes, kLeastRows, kMostRows);
  }

  EdgeMlpResult forward() const {
    const at::Tensor edge = at::empty_like(in_.edge);
    const at::Tensor sums = node_sums(graph_.num_dst(), features_);
    for (std::int64_t first = 0; first < graph_.num_edges(); first += chunk_rows()) {
      for_blocks(first, [&](const Block& block) {
        const at::Tensor out = output(hidden_layers(block).back());
        run(kernels::NormalizeRowsArgs{.dtype = dtype_,
                                       .count = block.count,
                                       .length = features_,
                                       .x = out.const_data_ptr(),
                                       .weight = in_.norm_weight.const_data_ptr(),
                                       .bias = in_.norm_bias.const_data_ptr(),
                                       .eps = kEdgeMlpEps,
                                       .residual = block.of(in_.edge).const_data_ptr(),
                                       .out = block.of(edge).mutable_data_ptr()});
      });
      const Block chunk = chunk_from(first);
      add_to_nodes(chunk.of(edge), {{graph_.dst(), sums}}, first);
    }
    return {edge, sums.to(type_)};
  }

  EdgeMlpGradients backward(const EdgeMlpUpstream& upstream, bool needs_edge) const {
    const at::Tensor edge_grad = needs_edge ? at::empty_like(in_.edge) : at::Tensor();
    const at::Tensor src = node_sums(graph_.num_src(), hidden_);
    const at::Tensor dst = node_sums(graph_.num_dst(), hidden_);
    const at::Tensor first_grads = at::empty({chunk_rows(), hidden_}, in_.edge.options());
    const PartialSums weight(in_.weight, wide_), out_weight(in_.out_weight, wide_);
    const PartialSums norm(at::empty({3, features_}, in_.norm_weight.options()), wide_);
    const at::Tensor none = at::empty({0}, in_.edge.options());
    const PartialSums hidden_weight(in_.hidden_weight.value_or(none), wide_);
    const PartialSums hidden_bias(in_.hidden_bias.value_or(none), wide_);
    const Rows edge_upstream(upstream.edge), sum_upstream(upstream.sum);

    for (std::int64_t first = 0; first < graph_.num_edges(); first += chunk_rows()) {
      for_blocks(first, [&](const Block& block) {
        const std::vector<at::Tensor> layers = hidden_layers(block);
        const kernels::PickedRows of_edge = edge_upstream.from(block.first);
        const kernels::PickedRows of_sum = sum_upstream.picked(ids_from(graph_.dst(), block.first));
        at::Tensor grad = output_grad(layers.back(), block, of_edge, of_sum, norm);
        out_weight.of(block).add_(transposed_product(grad, layers.back()));
        grad = dense_product(grad, in_.out_weight, std::nullopt, /*transposed=*/false);
        for (std::int64_t i = layers_; i > 0; --i) {
          const auto at = static_cast<std::size_t>(i);
          at::threshold_backward_out(grad, grad, layers[at], 0);
          hidden_weight.of(block).select(0, i - 1).add_(transposed_product(grad, layers[at - 1]));
          hidden_bias.of(block).select(0, i - 1).add_(grad.sum(0, /*keepdim=*/false, wide_));
          grad = dense_product(grad, in_.hidden_weight->select(0, i - 1), std::nullopt, false);
        }
        at::Tensor first_grad = first_grads.narrow(0, block.first - first, block.count);
        at::threshold_backward_out(first_grad, grad, layers.front(), 0);
        weight.of(block).add_(transposed_product(first_grad, block.of(in_.edge)));
        if (!needs_edge) return;
        const at::Tensor product = dense_product(first_grad, in_.weight, std::nullopt, false);
        run(kernels::AddRowsArgs{.dtype = dtype_,
                                 .count = block.count,
                                 .length = features_,
                                 .terms = {{product.const_data_ptr(), {}}, of_edge, of_sum},
                                 .out = block.of(edge_grad).mutable_data_ptr()});
      });
      add_to_nodes(first_grads.narrow(0, 0, chunk_from(first).count),
                   {{graph_.src(), src}, {graph_.dst(), dst}}, first);
    }
    const at::Tensor of_norm = norm.total();
    const auto present = [](const OptionalTensor& parameter, const PartialSums& sums) {
      return parameter ? sums.total() : at::Tensor();
    };
    return {src.to(type_),
            dst.to(type_),
            edge_grad,
            weight.total(),
            present(in_.hidden_weight, hidden_weight),
            present(in_.hidden_bias, hidden_bias),
            out_weight.total(),
            of_norm.select(0, 2).to(type_),
            of_norm.select(0, 0).to(norm_type_),
            of_norm.select(0, 1).to(norm_type_)};
  }

 private:
  /// Contiguous rows for kernels, or zeros.
  class Rows {
   public:
    explicit Rows(const OptionalTensor& rows) : rows_(rows ? rows->contiguous() : at::Tensor()) {}
    kernels::PickedRows picked(kernels::Ids ids) const {
      if (!rows_.defined()) return {};
      return {rows_.const_data_ptr(), ids};
    }
    kernels::PickedRows from(std::int64_t first) const {
      if (!rows_.defined()) return {};
      return {rows_.narrow(0, first, rows_.size(0) - first).const_data_ptr(), {}};
    }

   private:
    at::Tensor rows_;
  };

  struct NodeSums {
    at::Tensor ids, sums;
  };

  std::int64_t chunk_rows() const { return kBlocksOfChunk * block_rows_; }
  Block chunk_from(std::int64_t first) const {
    return {first, std::min(chunk_rows(), graph_.num_edges() - first), 0};
  }
  at::Tensor node_sums(std::int64_t nodes, std::int64_t length) const {
    return at::zeros({nodes, length}, in_.edge.options().dtype(wide_));
  }

  /// Calls f(block) for the blocks of a chunk on libtorch's threads. Always for all numbers, so
  /// that products run on one thread each, whatever the number of threads and blocks.
  template <class F>
  void for_blocks(std::int64_t first, const F& f) const {
    at::parallel_for(0, kBlocksOfChunk, 1, [&](std::int64_t begin, std::int64_t end) {
      const at::AutoDispatchBelowADInplaceOrView below;
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      for (std::int64_t number = begin; number < end; ++number) {
        const std::int64_t row = first + number * block_rows_;
        const std::int64_t count = std::min(block_rows_, graph_.num_edges() - row);
        if (count > 0) f(Block{row, count, number});
      }
    });
  }

  /// The layers behind a relu, [count, hidden] each.
  std::vector<at::Tensor> hidden_layers(const Block& block) const {
    std::vector<at::Tensor> layers = {
        dense_product(block.of(in_.edge), in_.weight, std::nullopt, /*transposed=*/true)};
    const at::Tensor& first = layers.front();
    const auto ends = [&](const at::Tensor& rows, const at::Tensor& ids) {
      return kernels::PickedRows{rows.const_data_ptr(), ids_from(ids, block.first)};
    };
    run(kernels::AddRowsArgs{.dtype = dtype_,
                             .count = block.count,
                             .length = hidden_,
                             .terms = {{first.const_data_ptr(), {}},
                                       ends(in_.src, graph_.src()),
                                       ends(in_.dst, graph_.dst())},
                             .relu = true,
                             .out = first.mutable_data_ptr()});
    for (std::int64_t i = 0; i < layers_; ++i) {
      layers.push_back(dense_product(layers.back(), in_.hidden_weight->select(0, i),
                                     in_.hidden_bias->select(0, i), /*transposed=*/true)
                           .relu_());
    }
    return layers;
  }

  /// The rows that are normalized.
  at::Tensor output(const at::Tensor& hidden) const {
    return dense_product(hidden, in_.out_weight, in_.out_bias, /*transposed=*/true);
  }

  /// The gradient of output(); adds those of the norm and of the bias.
  at::Tensor output_grad(const at::Tensor& hidden, const Block& block,
                         const kernels::PickedRows& of_edge, const kernels::PickedRows& of_sum,
                         const PartialSums& norm) const {
    at::Tensor rows = output(hidden);
    const at::Tensor sums = at::zeros({3, features_}, in_.norm_weight.options());
    run(kernels::NormalizeRowsGradArgs{.dtype = dtype_,
                                       .count = block.count,
                                       .length = features_,
                                       .x = rows.const_data_ptr(),
                                       .weight = in_.norm_weight.const_data_ptr(),
                                       .eps = kEdgeMlpEps,
                                       .grads = {of_edge, of_sum},
                                       .x_grad = rows.mutable_data_ptr(),
                                       .sums = sums.mutable_data_ptr()});
    norm.of(block).add_(sums);
    return rows;
  }

  /// Adds the rows of a chunk, which begins at edge `first`, to their nodes' sums.
  void add_to_nodes(const at::Tensor& rows, const std::vector<NodeSums>& nodes,
                    std::int64_t first) const {
    const std::int64_t shares = at::in_parallel_region() ? 1 : at::get_num_threads();
    at::parallel_for(0, shares, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t share = begin; share < end; ++share) {
        for (const NodeSums& one : nodes) {
          run(kernels::ScatterRowsArgs{.dtype = dtype_,
                                       .count = rows.size(0),
                                       .length = rows.size(1),
                                       .rows = rows.const_data_ptr(),
                                       .ids = ids_from(one.ids, first),
                                       .share = share,
                                       .shares = shares,
                                       .sums = one.sums.mutable_data_ptr()});
        }
      }
    });
  }

  const Topology& graph_;
  at::ScalarType type_, wide_, norm_type_;
  DType dtype_;
  EdgeMlpInputs in_;
  std::int64_t hidden_, features_, layers_, block_rows_ = 0;
};

}  // namespace

EdgeMlpResult blocked_edge_mlp(const EdgeMlpInputs& in) {
  return EdgeBlocks(in).forward();
}

EdgeMlpGradients blocked_edge_mlp_grad(const EdgeMlpInputs& in, const EdgeMlpUpstream& upstream,
                                       bool needs_edge) {
  return EdgeBlocks(in).backward(upstream, needs_edge);
}

}  // namespace mezzo::detail
