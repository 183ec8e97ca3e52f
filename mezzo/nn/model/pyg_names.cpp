#include "mezzo/nn/model/pyg_names.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/edge_conv.h"
#include "mezzo/nn/conv/edge_filter_layers.h"
#include "mezzo/nn/conv/gated_graph_conv.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/conv/propagation_layers.h"
#include "mezzo/nn/model/mlp.h"
#include "mezzo/nn/model/model.h"
#include "mezzo/nn/pooling.h"

namespace mezzo::nn::detail {
namespace {

using Parts = std::vector<at::Tensor>;

TensorSource renamed(std::string name) {
  return {{std::move(name)}};
}

TensorSource changed(std::string name, std::function<at::Tensor(const at::Tensor&)> change) {
  return {{std::move(name)}, [change](const Parts& parts) { return change(parts[0]); }};
}

TensorSource transposed(std::string name) {
  return changed(std::move(name), [](const at::Tensor& weight) { return weight.t(); });
}

/// A tensor that two modules share: Python lists it under both names.
TensorSource shared(std::string name, std::string copy) {
  return {{std::move(name), std::move(copy)}, [](const Parts& parts) {
            const bool is_same =
                parts[0].scalar_type() == parts[1].scalar_type() && at::equal(parts[0], parts[1]);
            return is_same ? parts[0] : at::Tensor();
          }};
}

/// The weights of several linear layers that multiply rows which are side by side here.
TensorSource side_by_side(std::int64_t count) {
  TensorSource source;
  for (std::int64_t i = 0; i < count; ++i) {
    source.names.push_back("lins." + std::to_string(i) + ".weight");
  }
  source.make = [](const Parts& parts) { return at::cat(parts, 1); };
  return source;
}

/// With concat=False PyG adds a residual [out, in] and a bias [out] to the mean of the heads; here
/// each head has them.
template <class Options>
auto repeat_for_heads(const Options& options) {
  return [heads = options.num_heads, width = options.out_features](const at::Tensor& rows) {
    if (heads == 1 || rows.dim() == 0 || rows.size(0) != width) return rows;
    return at::cat(Parts(static_cast<std::size_t>(heads), rows));
  };
}

std::vector<TensorSources> graph_conv_forms() {
  return {{{"weight", transposed("lin.weight")}}};
}

std::vector<TensorSources> sage_forms(const SAGEConvOptions& options) {
  const TensorSources before_dgl_1_0 = {{"fc_self.bias", renamed("bias")}};
  if (options.aggregator == Aggregator::kGcn) return {};
  if (options.aggregator == Aggregator::kLstm) return {before_dgl_1_0};
  // PyG's lin_l multiplies the neighbours, but has the bias.
  const TensorSources pyg = {{"fc_neigh.weight", renamed("lin_l.weight")},
                             {"fc_self.weight", renamed("lin_r.weight")},
                             {"fc_self.bias", renamed("lin_l.bias")},
                             {"fc_pool.weight", renamed("lin.weight")},
                             {"fc_pool.bias", renamed("lin.bias")}};
  return {pyg, before_dgl_1_0};
}

std::vector<TensorSources> gat_forms(const GATConvOptions& options) {
  const auto repeat = repeat_for_heads(options);
  const TensorSources pyg = {{"fc.weight", renamed("lin.weight")},
                             {"fc_src.weight", renamed("lin_src.weight")},
                             {"fc_dst.weight", renamed("lin_dst.weight")},
                             {"attn_l", renamed("att_src")},
                             {"attn_r", renamed("att_dst")},
                             {"res_fc.weight", changed("res.weight", repeat)},
                             {"res_fc.bias", changed("bias", repeat)},
                             {"bias", changed("bias", repeat)}};
  TensorSources older_pyg = pyg;
  older_pyg["fc.weight"] = shared("lin_src.weight", "lin_dst.weight");
  return {pyg, older_pyg, {{"res_fc.bias", renamed("bias")}}};  // the last: DGL before 1.1
}

/// PyG's GATv2Conv adds a bias to its result. The shares of attention sum to 1, so the bias of the
/// sources has the same effect; that of the destinations restores the scores.
TensorSource with_bias_of_result(const GATv2ConvOptions& options, std::string name, int sign) {
  return {{std::move(name), "bias"},
          [sign, repeat = repeat_for_heads(options)](const Parts& parts) {
            const at::Tensor added = repeat(parts[1]).to(at::kDouble);
            const bool fits = added.sizes() == parts[0].sizes();
            return fits ? parts[0].to(at::kDouble) + sign * added : at::Tensor();
          }};
}

std::vector<TensorSources> gatv2_forms(const GATv2ConvOptions& options, bool has_res_fc) {
  const auto repeat = repeat_for_heads(options);
  TensorSources pyg = {{"attn", renamed("att")},
                       {"res_fc.weight", changed("res.weight", repeat)},
                       {"res_fc.bias", changed("bias", repeat)}};
  if (options.share_weights) {
    pyg["fc_src.weight"] = shared("lin_l.weight", "lin_r.weight");
    pyg["fc_src.bias"] = shared("lin_l.bias", "lin_r.bias");
    return {pyg,
            {{"fc_src.weight", shared("fc_src.weight", "fc_dst.weight")},
             {"fc_src.bias", shared("fc_src.bias", "fc_dst.bias")}}};  // DGL
  }
  pyg["fc_src.weight"] = renamed("lin_l.weight");
  pyg["fc_dst.weight"] = renamed("lin_r.weight");
  pyg["fc_src.bias"] =
      has_res_fc ? renamed("lin_l.bias") : with_bias_of_result(options, "lin_l.bias", 1);
  pyg["fc_dst.bias"] =
      has_res_fc ? renamed("lin_r.bias") : with_bias_of_result(options, "lin_r.bias", -1);
  return {pyg};
}

/// PyG multiplies [h_v, h_u - h_v] by one weight, here theta multiplies h_v - h_u.
TensorSources edge_conv_form(const EdgeConvOptions& options, const std::string& linear) {
  const std::int64_t in = options.in_features;
  const auto zeros = [](const at::Tensor& bias) { return at::zeros_like(bias); };
  return {{"phi.weight",
           changed(linear + "weight", [in](const at::Tensor& w) { return w.slice(1, 0, in); })},
          {"phi.bias", renamed(linear + "bias")},
          {"theta.weight",
           changed(linear + "weight", [in](const at::Tensor& w) { return w.slice(1, in).neg(); })},
          {"theta.bias", changed(linear + "bias", zeros)}};
}

/// PyG has a weight for each step, without a bias, so only a single step is the same.
std::vector<TensorSources> gated_graph_forms(const GatedGraphConvOptions& options) {
  if (options.num_steps != 1 || options.num_edge_types != 1) return {};
  TensorSources pyg = {
      {"linears.0.weight",
       changed("weight",
               [](const at::Tensor& w) { return w.dim() == 3 && w.size(0) == 1 ? w[0].t() : w; })},
      {"linears.0.bias", changed("weight", [out = options.out_features](const at::Tensor& w) {
         return at::zeros({out}, w.options());
       })}};
  for (const std::string tensor : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
    pyg["gru." + tensor] = renamed("rnn." + tensor);
  }
  return {pyg};
}

}  // namespace

std::vector<TensorSources> other_forms(const torch::nn::Module& layer) {
  if (layer.as<GraphConvImpl>() != nullptr) return graph_conv_forms();
  if (const auto* sage = layer.as<SAGEConvImpl>()) return sage_forms(sage->options);
  if (const auto* gat = layer.as<GATConvImpl>()) return gat_forms(gat->options);
  if (const auto* gatv2 = layer.as<GATv2ConvImpl>()) {
    return gatv2_forms(gatv2->options, !gatv2->res_fc.is_empty());
  }
  if (layer.as<SGConvImpl>() != nullptr) {
    return {{{"fc.weight", renamed("lin.weight")}, {"fc.bias", renamed("lin.bias")}}};
  }
  if (const auto* tag = layer.as<TAGConvImpl>()) {
    return {{{"lin.weight", side_by_side(tag->options.k + 1)}, {"lin.bias", renamed("bias")}}};
  }
  if (const auto* cheb = layer.as<ChebConvImpl>()) {
    return {{{"linear.weight", side_by_side(cheb->options.k)}, {"linear.bias", renamed("bias")}}};
  }
  if (const auto* edge = layer.as<EdgeConvImpl>()) {
    return {edge_conv_form(edge->options, "nn."), edge_conv_form(edge->options, "nn.0.")};
  }
  if (const auto* gated = layer.as<GatedGraphConvImpl>()) return gated_graph_forms(gated->options);
  if (layer.as<NNConvImpl>() != nullptr) return {{{"res_fc.weight", renamed("lin.weight")}}};
  return {};
}

std::string pyg_child_name(const torch::nn::Module& module, const std::string& name) {
  const bool is_function = name == "apply_func" || name == "edge_func" || name == "feat_nn";
  if (is_function &&
      (module.as<GINConvImpl>() != nullptr || module.as<GINEConvImpl>() != nullptr ||
       module.as<NNConvImpl>() != nullptr || module.as<GlobalAttentionPoolingImpl>() != nullptr)) {
    return "nn";
  }
  const bool is_model = module.as<ModelImpl>() != nullptr;
  if (!is_model && module.as<MLPImpl>() == nullptr) return name;
  if (name == "own") return "";
  if (name.starts_with("layer")) return (is_model ? "convs." : "lins.") + name.substr(5);
  if (name.starts_with("norm")) return "norms." + name.substr(4);
  return name;
}

}  // namespace mezzo::nn::detail
