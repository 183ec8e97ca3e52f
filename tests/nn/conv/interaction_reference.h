#pragma once

#include <utility>
#include <vector>

#include "mezzo/nn/conv/interaction_block.h"

#include "support/edge_attention.h"
#include "support/running_error.h"

/// InteractionBlock and its gradients, with the error bounds of a computation that stores the rows
/// after each product, sum and normalization, in any dtype.
namespace mezzo::test {

/// An MLP after its first product: relu, a linear layer, ..., relu, a linear layer, normalization.
class RoundedMlp {
 public:
  /// first: the rows before the first relu. parameters: weight and bias of each linear layer, then
  /// of the normalization.
  RoundedMlp(const Rounded& first, std::vector<at::Tensor> parameters)
      : parameters_(std::move(parameters)), layers_({first}) {
    const std::size_t norm = parameters_.size() - 2;
    for (std::size_t i = 0; i < norm; i += 2) {
      layers_.push_back(applied(relu(layers_.back()), parameters_[i], parameters_[i + 1]));
    }
    // The normalization stores mean and scale, as libtorch's does; other steps are accumulated.
    const Rounded x = held(layers_.back(), wide());
    const Rounded centred = x - held(stored(mean(x), storage()), wide());
    scale_ = held(stored(inverse_root(mean(centred * centred), 1e-5), storage()), wide());
    unit_ = centred * scale_;
    result_ = stored(unit_ * wide(parameters_[norm]) + wide(parameters_[norm + 1]), storage());
  }

  const Rounded& result() const { return result_; }

  /// How the normalization adds the gradients of its parameters over the rows: libtorch's stores
  /// each partial sum.
  enum class NormSums { kAccumulated, kStored };

  /// The gradients of the first rows, then of the parameters. grad: of the result.
  std::vector<Rounded> gradients(const Rounded& grad, NormSums sums) const {
    const std::size_t norm = parameters_.size() - 2;
    std::vector<Rounded> all(parameters_.size() + 1);
    const Rounded of_result = held(grad, wide());
    const Rounded of_unit = of_result * wide(parameters_[norm]);
    const auto total = [&](const Rounded& rows) {
      return sums == NormSums::kStored ? sum_of_stored_rows(held(rows, storage()))
                                       : stored(sum_of_rows(rows), storage());
    };
    all[norm + 1] = total(of_result * unit_);
    all[norm + 2] = total(of_result);
    Rounded rows =
        stored((of_unit - mean(of_unit) - unit_ * mean(of_unit * unit_)) * scale_, storage());
    for (std::size_t i = norm; i > 0; i -= 2) {
      const Rounded& before = layers_[i / 2 - 1];
      all[i - 1] = matmul(rows.t(), relu(before));
      all[i] = sum_of_rows(rows);
      rows = relu_gradient(before, matmul(rows, exactly(parameters_[i - 2])));
    }
    all[0] = rows;
    return all;
  }

  /// The sums of the columns: [M].
  static Rounded sum_of_rows(const Rounded& x) { return row_sums(x.t()).reshape({x.size(1)}); }

 private:
  static Rounded sum_of_stored_rows(const Rounded& x) {
    std::vector<Rounded> rows = {zero_rows(x, 1, x.size(1))};
    for (std::int64_t i = 0; i < x.size(0); ++i) rows.push_back(x.narrow(0, i, 1));
    return sum_in_any_order(rows).reshape({x.size(1)});
  }
  at::ScalarType storage() const { return layers_.front().storage; }
  at::ScalarType wide() const { return storage() == at::kDouble ? at::kDouble : at::kFloat; }
  Rounded wide(const at::Tensor& parameter) const { return held(exactly(parameter), wide()); }
  static Rounded mean(const Rounded& x) { return row_sums(x) / static_cast<double>(x.size(1)); }

  std::vector<at::Tensor> parameters_;
  std::vector<Rounded> layers_;  ///< before each relu, and before the normalization
  Rounded scale_, unit_, result_;
};

/// edge_mlp (see EdgeMlpInputs).
class RoundedEdgeMlp {
 public:
  /// further: weight and bias of each linear layer after the first, then of the normalization.
  RoundedEdgeMlp(const Topology& topology, const Rounded& src, const Rounded& dst,
                 const at::Tensor& edge, const at::Tensor& weight,
                 const std::vector<at::Tensor>& further)
      : out_of_(edges_into_nodes(topology.reverse())),
        into_(edges_into_nodes(topology)),
        edge_(exactly(edge)),
        weight_(exactly(weight)),
        mlp_(matmul(edge_, weight_.t()) + src.index_select(0, topology.src().to(at::kLong)) +
                 dst.index_select(0, topology.dst().to(at::kLong)),
             further) {}

  Rounded edge() const { return edge_ + mlp_.result(); }
  Rounded sum() const { return matmul(into_, edge()); }

  /// Of src, dst, edge, weight, and the further parameters.
  std::vector<Rounded> gradients(const Rounded& of_edge, const Rounded& of_sum) const {
    const at::ScalarType storage = edge_.storage;
    const at::ScalarType wide = storage == at::kDouble ? at::kDouble : at::kFloat;
    const Rounded grad = held(of_edge, wide) + held(matmul(into_.t(), of_sum), wide);
    std::vector<Rounded> further = mlp_.gradients(grad, RoundedMlp::NormSums::kAccumulated);
    const Rounded first = further.front();
    std::vector<Rounded> all = {matmul(out_of_, first), matmul(into_, first),
                                stored(held(matmul(first, weight_), wide) + grad, storage),
                                matmul(first.t(), edge_)};
    all.insert(all.end(), further.begin() + 1, further.end());
    return all;
  }

 private:
  at::Tensor out_of_, into_;
  Rounded edge_, weight_;
  RoundedMlp mlp_;
};

/// The results h' and e', then the gradients of h, e and the parameters in their order.
/// in: h and e; grads: of the results.
inline std::vector<Rounded> rounded_block(const nn::InteractionBlock& layer,
                                          const Topology& topology,
                                          const std::vector<at::Tensor>& in,
                                          const std::vector<at::Tensor>& grads) {
  using Tensors = std::vector<at::Tensor>;
  const std::int64_t node = in[0].size(1), edge = in[1].size(1);
  const Tensors of_edges = layer->edge_mlp->parameters(), of_nodes = layer->node_mlp->parameters();
  const Tensors ends = of_edges[0].split_with_sizes({node, node, edge}, 1);
  const Tensors own = of_nodes[0].split_with_sizes({node, edge}, 1);
  const auto further = [](const Tensors& all) { return Tensors(all.begin() + 2, all.end()); };

  const Rounded h = exactly(in[0]);
  const RoundedEdgeMlp edges(topology, applied(h, ends[0], {}), applied(h, ends[1], of_edges[1]),
                             in[1], ends[2], further(of_edges));
  const Rounded received = edges.sum();
  const RoundedMlp nodes(applied(h, own[0], of_nodes[1]) + applied(received, own[1], {}),
                         further(of_nodes));

  const Rounded of_h = exactly(grads[0]);
  const std::vector<Rounded> node_grads = nodes.gradients(of_h, RoundedMlp::NormSums::kStored);
  const Rounded& first = node_grads[0];
  const std::vector<Rounded> edge_grads =
      edges.gradients(exactly(grads[1]), matmul(first, exactly(own[1])));
  const Rounded &src = edge_grads[0], &dst = edge_grads[1];
  std::vector<Rounded> all = {
      h + nodes.result(), edges.edge(),
      sum_in_any_order({of_h, matmul(first, exactly(own[0])), matmul(src, exactly(ends[0])),
                        matmul(dst, exactly(ends[1]))}),
      edge_grads[2]};
  all.push_back(cat({matmul(src.t(), h), matmul(dst.t(), h), edge_grads[3]}, 1));
  all.push_back(RoundedMlp::sum_of_rows(dst));
  all.insert(all.end(), edge_grads.begin() + 4, edge_grads.end());
  all.push_back(cat({matmul(first.t(), h), matmul(first.t(), received)}, 1));
  all.push_back(RoundedMlp::sum_of_rows(first));
  all.insert(all.end(), node_grads.begin() + 1, node_grads.end());
  return all;
}

}  // namespace mezzo::test
