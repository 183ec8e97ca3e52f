// The MLP on edges on the CPU, one block of edges at a time. Nothing of a block is kept: its
// backward computes it again, which is cheaper than to write and read it.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "mezzo/kernels/backend.h"
#include "mezzo/ops/dense/block_products.h"
#include "mezzo/ops/dense/edge_mlp.h"

namespace mezzo::detail {
namespace {

/// Blocks of a chunk. Between chunks, sums of nodes are added.
constexpr std::int64_t kBlocksOfChunk = 32;
/// Bytes of a block of rows: several fit into a level-2 cache.
constexpr std::int64_t kBlockBytes = 1 << 17;
/// The rows of a block are a multiple of this, which the tiles of products divide.
constexpr std::int64_t kRowGranule = 120;

struct Block {
  std::int64_t first, count;  ///< edges
  std::int64_t number;        ///< in its chunk
};

template <class Args>
void run(const Args& args) {
  kernels::cpu_backend().run(args);
}

/// `sums` rounded to `type`. 16-bit numbers are written over the sums, because the backward has its
/// peak of memory here. On one thread: each number is read before another one is written there.
at::Tensor rounded_in_place(const at::Tensor& sums, at::ScalarType type) {
  if (sums.scalar_type() == type) return sums;
  const at::Tensor rounded = at::empty({0}, sums.options().dtype(type));
  const auto* from = sums.const_data_ptr<float>();
  auto* to = static_cast<std::uint16_t*>(sums.mutable_data_ptr());
  std::array<std::uint16_t, 1024> some;
  for (std::int64_t i = 0; i < sums.numel(); i += std::ssize(some)) {
    const std::int64_t count = std::min(std::ssize(some), sums.numel() - i);
    kernels::cpu_backend().narrow(dtype_of("edge_mlp", type), from + i, some.data(), count);
    std::copy_n(some.begin(), count, to + i);
  }
  return rounded.set_(sums.storage(), 0, sums.sizes(), sums.strides());
}

/// Rows of a tensor [count, length] or, if undefined, zeros.
class TensorRows {
 public:
  explicit TensorRows(const OptionalTensor& rows)
      : rows_(rows ? rows->contiguous() : at::Tensor()) {
    if (!rows_.defined()) return;
    data_ = static_cast<char*>(rows_.data_ptr());
    length_ = rows_.size(1);
    row_bytes_ = length_ * static_cast<std::int64_t>(rows_.element_size());
  }
  const at::Tensor& tensor() const { return rows_; }
  bool defined() const { return data_ != nullptr; }
  std::int64_t length() const { return length_; }
  void* from(std::int64_t row) const { return defined() ? data_ + row * row_bytes_ : nullptr; }
  BlockRows of(std::int64_t first, std::int64_t count) const {
    return {from(first), count, length_};
  }
  kernels::PickedRows picked(kernels::Ids ids) const { return {data_, ids}; }

 private:
  at::Tensor rows_;
  char* data_ = nullptr;
  std::int64_t length_ = 0, row_bytes_ = 0;
};

/// Partial sums [kBlocksOfChunk, ...] of a gradient: those of the blocks with one number are added.
class PartialSums {
 public:
  PartialSums(at::IntArrayRef shape, at::TensorOptions options) {
    auto all = shape.vec();
    all.insert(all.begin(), kBlocksOfChunk);
    sums_ = at::zeros(all, options);
    bytes_ = static_cast<std::int64_t>(sums_.nbytes()) / kBlocksOfChunk;
  }
  /// From element `at` on.
  void* of(const Block& block, std::int64_t at = 0) const {
    return static_cast<char*>(sums_.mutable_data_ptr()) + block.number * bytes_ +
           at * static_cast<std::int64_t>(sums_.element_size());
  }
  at::Tensor total(at::ScalarType type) const {
    at::Tensor sum = sums_.select(0, 0);
    for (std::int64_t i = 1; i < kBlocksOfChunk; ++i) sum = sum + sums_.select(0, i);
    return sum.to(type);
  }

 private:
  at::Tensor sums_;
  std::int64_t bytes_ = 0;
};

/// The rows of a block's layers and gradients, and scratch memory of products, of one thread.
class BlockMemory {
 public:
  BlockMemory(std::int64_t rows, std::int64_t length, std::int64_t count, std::int64_t scratch,
              at::ScalarType type)
      : rows_(at::empty({count, rows * length}, type)),
        scratch_(at::empty({scratch}, at::kFloat)),
        bytes_(rows * length * static_cast<std::int64_t>(rows_.element_size())) {}
  BlockRows rows(std::int64_t i, const Block& block, std::int64_t length) const {
    return {static_cast<char*>(rows_.mutable_data_ptr()) + i * bytes_, block.count, length};
  }
  float* scratch() const { return scratch_.mutable_data_ptr<float>(); }

 private:
  at::Tensor rows_, scratch_;
  std::int64_t bytes_;
};

class EdgeBlocks {
 public:
  EdgeBlocks(const EdgeMlpInputs& in, bool of_gradients)
      : graph_(in.topology->value),
        type_(in.edge.scalar_type()),
        wide_(accumulator_of(type_)),
        dtype_(dtype_of("edge_mlp", type_)),
        src_(in.src),
        dst_(in.dst),
        edge_(in.edge),
        norm_weight_(in.norm_weight.to(wide_).contiguous()),
        norm_bias_(in.norm_bias.to(wide_).contiguous()),
        hidden_(in.weight.size(0)),
        features_(in.edge.size(1)),
        length_(std::max<std::int64_t>({1, hidden_, features_})),
        block_rows_(rows_of_block(length_ * static_cast<std::int64_t>(in.edge.element_size()))),
        transposed_(type_, std::min(block_rows_, graph_.num_edges()), length_) {
    const std::int64_t most_rows = std::min(block_rows_, graph_.num_edges());
    const auto add = [&](const at::Tensor& weight, const OptionalTensor& bias) {
      forward_.emplace_back(weight, bias, /*transposed=*/true, most_rows);
      if (of_gradients) {
        backward_.emplace_back(weight, std::nullopt, /*transposed=*/false, most_rows);
      }
    };
    add(in.weight, std::nullopt);
    for (std::int64_t i = 0; in.hidden_weight && i < in.hidden_weight->size(0); ++i) {
      add(in.hidden_weight->select(0, i), in.hidden_bias->select(0, i));
    }
    last_ = static_cast<std::int64_t>(forward_.size()) - 1;
    add(in.out_weight, in.out_bias);
    scratch_ = transposed_.scratch_numbers();
    for (const auto* factors : {&forward_, &backward_}) {
      for (const BlockFactor& factor : *factors) {
        scratch_ = std::max(scratch_, factor.scratch_numbers());
      }
    }
  }

  EdgeMlpResult forward() const {
    const TensorRows edge(at::empty_like(edge_.tensor()));
    const at::Tensor sums = node_sums(graph_.num_dst(), features_);
    for_chunks([&](std::int64_t first, std::int64_t count) {
      for_blocks(first, [&](const Block& block, const BlockMemory& memory) {
        compute_hidden(block, memory);
        const BlockRows out = output(block, memory);
        run(kernels::NormalizeRowsArgs{.dtype = dtype_,
                                       .count = block.count,
                                       .length = features_,
                                       .x = out.data,
                                       .weight = norm_weight_.const_data_ptr(),
                                       .bias = norm_bias_.const_data_ptr(),
                                       .eps = kEdgeMlpEps,
                                       .residual = edge_.from(block.first),
                                       .out = edge.from(block.first)});
      });
      add_to_nodes(edge.of(first, count), {{graph_.dst(), sums}}, first);
    });
    return {edge.tensor(), sums.to(type_)};
  }

  EdgeMlpGradients backward(const EdgeMlpInputs& in, const EdgeMlpUpstream& upstream,
                            bool needs_edge) const {
    const TensorRows edge_grad(needs_edge ? at::empty_like(edge_.tensor()) : OptionalTensor());
    const at::Tensor src = node_sums(graph_.num_src(), hidden_);
    const at::Tensor dst = node_sums(graph_.num_dst(), hidden_);
    const TensorRows first_grads(at::empty({kBlocksOfChunk * block_rows_, hidden_}, type_));
    const PartialSums weight({hidden_, features_}, wide_), out_weight({features_, hidden_}, wide_);
    const PartialSums norm({3, features_}, wide_);  // of weight, bias and rows
    const PartialSums hidden_weight({last_, hidden_, hidden_}, wide_);
    const PartialSums hidden_bias({last_, hidden_}, wide_);
    const TensorRows of_edge(upstream.edge), of_sum(upstream.sum);

    for_chunks([&](std::int64_t first, std::int64_t count) {
      for_blocks(first, [&](const Block& block, const BlockMemory& memory) {
        const auto layer = [&](std::int64_t i) { return memory.rows(i, block, hidden_); };
        const kernels::Ids ids = ids_from(graph_.dst(), block.first);
        const kernels::PickedRows grads[] = {{of_edge.from(block.first), {}}, of_sum.picked(ids)};
        compute_hidden(block, memory);
        const BlockRows rows = output(block, memory);
        run(kernels::NormalizeRowsGradArgs{.dtype = dtype_,
                                           .count = block.count,
                                           .length = features_,
                                           .x = rows.data,
                                           .weight = norm_weight_.const_data_ptr(),
                                           .eps = kEdgeMlpEps,
                                           .grads = {grads[0], grads[1]},
                                           .x_grad = rows.data,
                                           .sums = norm.of(block)});
        transposed_.add(rows, layer(last_), out_weight.of(block), memory.scratch());
        BlockRows grad = memory.rows(last_ + 2, block, hidden_);
        backward_.back().multiply(rows, grad, memory.scratch());
        for (std::int64_t i = last_; i > 0; --i) {
          mask(layer(i), grad, grad, hidden_bias.of(block, (i - 1) * hidden_));
          transposed_.add(grad, layer(i - 1), hidden_weight.of(block, (i - 1) * hidden_ * hidden_),
                          memory.scratch());
          backward_[static_cast<std::size_t>(i)].multiply(grad, layer(i), memory.scratch());
          grad = layer(i);
        }
        const BlockRows first_grad = first_grads.of(block.first - first, block.count);
        mask(layer(0), grad, first_grad, nullptr);
        transposed_.add(first_grad, edge_.of(block.first, block.count), weight.of(block),
                        memory.scratch());
        if (!needs_edge) return;
        backward_.front().multiply(first_grad, rows, memory.scratch());
        run(kernels::AddRowsArgs{.dtype = dtype_,
                                 .count = block.count,
                                 .length = features_,
                                 .terms = {{rows.data, {}}, grads[0], grads[1]},
                                 .out = edge_grad.from(block.first)});
      });
      add_to_nodes(first_grads.of(0, count), {{graph_.src(), src}, {graph_.dst(), dst}}, first);
    });
    const at::Tensor of_norm = norm.total(wide_);
    const at::ScalarType norm_type = in.norm_weight.scalar_type();
    const auto present = [&](const OptionalTensor& parameter, const PartialSums& sums) {
      return parameter ? sums.total(type_) : at::Tensor();
    };
    return {rounded_in_place(src, type_),
            rounded_in_place(dst, type_),
            edge_grad.tensor(),
            weight.total(type_),
            present(in.hidden_weight, hidden_weight),
            present(in.hidden_bias, hidden_bias),
            out_weight.total(type_),
            of_norm.select(0, 2).to(type_),
            of_norm.select(0, 0).to(norm_type),
            of_norm.select(0, 1).to(norm_type)};
  }

 private:
  struct NodeSums {
    at::Tensor ids, sums;
  };

  static std::int64_t rows_of_block(std::int64_t row_bytes) {
    constexpr std::int64_t kMostRows = 4080;
    return std::clamp(kBlockBytes / row_bytes / kRowGranule * kRowGranule, kRowGranule, kMostRows);
  }
  at::Tensor node_sums(std::int64_t nodes, std::int64_t length) const {
    return at::zeros({nodes, length}, wide_);
  }
  static kernels::Ids ids_from(const at::Tensor& ids, std::int64_t first) {
    const auto bytes = static_cast<std::int64_t>(ids.element_size());
    return {static_cast<const char*>(ids.const_data_ptr()) + first * bytes,
            ids.scalar_type() == at::kLong};
  }

  /// Calls f(first edge, number of edges) for each chunk.
  template <class F>
  void for_chunks(const F& f) const {
    const std::int64_t step = kBlocksOfChunk * block_rows_;
    for (std::int64_t first = 0; first < graph_.num_edges(); first += step) {
      f(first, std::min(step, graph_.num_edges() - first));
    }
  }

  /// Calls f(block, memory) for the blocks of a chunk on libtorch's threads. Always for all
  /// numbers, so that libtorch's products run on one thread each, whatever the number of threads
  /// and blocks.
  template <class F>
  void for_blocks(std::int64_t first, const F& f) const {
    at::parallel_for(0, kBlocksOfChunk, 1, [&](std::int64_t begin, std::int64_t end) {
      const at::AutoDispatchBelowADInplaceOrView below;
      const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      const BlockMemory memory(block_rows_, length_, last_ + 3, scratch_, type_);
      for (std::int64_t number = begin; number < end; ++number) {
        const std::int64_t row = first + number * block_rows_;
        const std::int64_t count = std::min(block_rows_, graph_.num_edges() - row);
        if (count > 0) f(Block{row, count, number}, memory);
      }
    });
  }

  /// The layers behind a relu: rows 0 to last_ of the memory, [count, hidden] each.
  void compute_hidden(const Block& block, const BlockMemory& memory) const {
    const kernels::Ids src = ids_from(graph_.src(), block.first);
    const kernels::Ids dst = ids_from(graph_.dst(), block.first);
    for (std::int64_t i = 0; i <= last_; ++i) {
      const BlockRows out = memory.rows(i, block, hidden_);
      kernels::AddRowsArgs sum{.dtype = dtype_,
                               .count = block.count,
                               .length = hidden_,
                               .terms = {{out.data, {}}},
                               .relu = true,
                               .out = out.data};
      if (i == 0) {
        forward_.front().multiply(edge_.of(block.first, block.count), out, memory.scratch());
        sum.terms[1] = src_.picked(src);
        sum.terms[2] = dst_.picked(dst);
      } else {
        forward_[static_cast<std::size_t>(i)].multiply(memory.rows(i - 1, block, hidden_), out,
                                                       memory.scratch());
      }
      run(sum);
    }
  }

  /// The rows that are normalized, after those of the layers in the memory.
  BlockRows output(const Block& block, const BlockMemory& memory) const {
    const BlockRows out = memory.rows(last_ + 1, block, features_);
    forward_.back().multiply(memory.rows(last_, block, hidden_), out, memory.scratch());
    return out;
  }

  /// The gradient of the relu that gave `x`; adds the sums of its rows.
  void mask(const BlockRows& x, const BlockRows& grad, const BlockRows& out, void* sums) const {
    run(kernels::ReluGradArgs{.dtype = dtype_,
                              .count = x.rows,
                              .length = x.columns,
                              .x = x.data,
                              .grad = grad.data,
                              .out = out.data,
                              .sums = sums});
  }

  /// Adds the rows of a chunk, which begins at edge `first`, to their nodes' sums.
  void add_to_nodes(const BlockRows& rows, const std::vector<NodeSums>& nodes,
                    std::int64_t first) const {
    const std::int64_t shares = at::in_parallel_region() ? 1 : at::get_num_threads();
    at::parallel_for(0, shares, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t share = begin; share < end; ++share) {
        for (const NodeSums& one : nodes) {
          run(kernels::ScatterRowsArgs{.dtype = dtype_,
                                       .count = rows.rows,
                                       .length = rows.columns,
                                       .rows = rows.data,
                                       .ids = ids_from(one.ids, first),
                                       .share = share,
                                       .shares = shares,
                                       .sums = one.sums.mutable_data_ptr()});
        }
      }
    });
  }

  const Topology& graph_;
  at::ScalarType type_, wide_;
  DType dtype_;
  TensorRows src_, dst_, edge_;
  at::Tensor norm_weight_, norm_bias_;
  std::int64_t hidden_, features_, length_, block_rows_;  ///< length_: the largest
  std::int64_t last_ = 0;                                 ///< the last hidden layer
  std::int64_t scratch_ = 0;                              ///< numbers for products
  TransposedBlocks transposed_;
  std::vector<BlockFactor> forward_, backward_;  ///< of edges, of the hidden layers, of the output
};

}  // namespace

EdgeMlpResult blocked_edge_mlp(const EdgeMlpInputs& in) {
  return EdgeBlocks(in, /*of_gradients=*/false).forward();
}

EdgeMlpGradients blocked_edge_mlp_grad(const EdgeMlpInputs& in, const EdgeMlpUpstream& upstream,
                                       bool needs_edge) {
  return EdgeBlocks(in, /*of_gradients=*/true).backward(in, upstream, needs_edge);
}

}  // namespace mezzo::detail
