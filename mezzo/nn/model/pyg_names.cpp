#include "mezzo/nn/model/pyg_names.h"

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/model/mlp.h"
#include "mezzo/nn/model/model.h"

namespace mezzo::nn::detail {
namespace {

/// A tensor of a layer: its name here and in PyG. A second row is the name in older versions.
struct PygName {
  std::string_view own, pyg;
};

constexpr PygName kGcnNames[] = {{"weight", "lin.weight"}};
// Two linear parts: PyG's lin_l multiplies the neighbours, in SAGEConv with the bias.
constexpr PygName kSageNames[] = {{"fc_neigh.weight", "lin_l.weight"},
                                  {"fc_self.weight", "lin_r.weight"},
                                  {"fc_self.bias", "lin_l.bias"},
                                  {"fc_pool.weight", "lin.weight"},
                                  {"fc_pool.bias", "lin.bias"}};
constexpr PygName kGatNames[] = {{"fc.weight", "lin.weight"},
                                 {"fc.weight", "lin_src.weight"},
                                 {"fc_src.weight", "lin_src.weight"},
                                 {"fc_dst.weight", "lin_dst.weight"},
                                 {"attn_l", "att_src"},
                                 {"attn_r", "att_dst"},
                                 {"res_fc.weight", "res.weight"},
                                 {"res_fc.bias", "bias"}};
constexpr PygName kGatv2Names[] = {{"fc_src.weight", "lin_l.weight"},
                                   {"fc_src.bias", "lin_l.bias"},
                                   {"fc_dst.weight", "lin_r.weight"},
                                   {"fc_dst.bias", "lin_r.bias"},
                                   {"attn", "att"},
                                   {"res_fc.weight", "res.weight"},
                                   {"res_fc.bias", "bias"}};

std::span<const PygName> names_of(const torch::nn::Module& module) {
  if (module.as<GraphConvImpl>() != nullptr) return kGcnNames;
  if (module.as<GATConvImpl>() != nullptr) return kGatNames;
  if (module.as<GATv2ConvImpl>() != nullptr) return kGatv2Names;
  const auto* sage = module.as<SAGEConvImpl>();
  const bool is_in_pyg = sage != nullptr && sage->options.aggregator != Aggregator::kGcn &&
                         sage->options.aggregator != Aggregator::kLstm;
  return is_in_pyg ? std::span<const PygName>(kSageNames) : std::span<const PygName>();
}

/// PyG's name of a submodule.
std::string child_name(const torch::nn::Module& module, const std::string& name) {
  if (module.as<GINConvImpl>() != nullptr && name == "apply_func") return "nn";
  const bool is_model = module.as<ModelImpl>() != nullptr;
  if (!is_model && module.as<MLPImpl>() == nullptr) return name;
  if (name.starts_with("layer")) return (is_model ? "convs." : "lins.") + name.substr(5);
  if (name.starts_with("norm")) return "norms." + name.substr(4) + ".module";
  return name;
}

class PygTranslation {
 public:
  explicit PygTranslation(NamedTensors in_file) : in_file_(std::move(in_file)) {}

  /// Collects PyG's names. own, pyg: the prefixes of the module's names.
  void visit(const torch::nn::Module& module, const std::string& own, const std::string& pyg) {
    convert(module, pyg);
    for (const PygName& row : names_of(module)) {
      const std::string name = pyg + std::string(row.pyg);
      const auto [it, is_first] = names_.try_emplace(own + std::string(row.own), name);
      if (!is_first && in_file_.count(it->second) == 0 && in_file_.count(name) != 0) {
        it->second = name;
      }
    }
    const auto add = [&](const auto& items) {
      for (const auto& item : items) names_.try_emplace(own + item.key(), pyg + item.key());
    };
    add(module.named_parameters(/*recurse=*/false));
    add(module.named_buffers(/*recurse=*/false));
    for (const auto& child : module.named_children()) {
      visit(*child.value(), own + child.key() + ".", pyg + child_name(module, child.key()) + ".");
    }
  }

  /// Whether the file has a tensor under PyG's name alone.
  bool is_pyg(const NamedTensors& own) const {
    for (const auto& [name, tensor] : own) {
      if (in_file_.count(name) == 0 && in_file_.count(names_.at(name)) != 0) return true;
    }
    return false;
  }

  PygTensors result(const NamedTensors& own) && {
    PygTensors result;
    for (const auto& [name, tensor] : own) {
      const std::string& pyg = result.names[name] = names_.at(name);
      auto node = in_file_.extract(in_file_.count(name) != 0 ? name : pyg);
      if (!node.empty()) result.tensors.emplace(name, node.mapped());
    }
    result.tensors.merge(in_file_);
    return result;
  }

 private:
  /// The tensors that the layer has in another shape, or not.
  void convert(const torch::nn::Module& module, const std::string& pyg) {
    if (module.as<GraphConvImpl>() != nullptr) {
      const auto weight = in_file_.find(pyg + "lin.weight");
      if (weight != in_file_.end() && weight->second.dim() == 2) {
        weight->second = weight->second.t();
      }
    } else if (const auto* gat = module.as<GATConvImpl>()) {
      if (!gat->fc.is_empty()) remove_copy(pyg + "lin_dst.weight", pyg + "lin_src.weight");
      repeat_for_heads(gat->options, pyg);
    } else if (const auto* gatv2 = module.as<GATv2ConvImpl>()) {
      repeat_for_heads(gatv2->options, pyg);
      if (gatv2->options.share_weights) {
        remove_copy(pyg + "lin_r.weight", pyg + "lin_l.weight");
        remove_copy(pyg + "lin_r.bias", pyg + "lin_l.bias");
      } else if (gatv2->res_fc.is_empty()) {
        split_bias(pyg);
      }
    }
  }

  /// PyG lists a linear part that two names share twice.
  void remove_copy(const std::string& name, const std::string& of) {
    const auto copy = in_file_.find(name), original = in_file_.find(of);
    if (copy == in_file_.end() || original == in_file_.end()) return;
    const at::Tensor &a = copy->second, &b = original->second;
    if (a.scalar_type() == b.scalar_type() && at::equal(a, b)) in_file_.erase(copy);
  }

  /// With concat=False PyG adds a residual [out, in] and a bias [out] to the mean of the heads;
  /// here each head has them.
  template <class Options>
  void repeat_for_heads(const Options& options, const std::string& pyg) {
    for (const char* name : {"res.weight", "bias"}) {
      const auto it = in_file_.find(pyg + name);
      if (it == in_file_.end() || it->second.dim() == 0) continue;
      if (it->second.size(0) != options.out_features) continue;
      it->second =
          at::cat(std::vector<at::Tensor>(static_cast<std::size_t>(options.num_heads), it->second));
    }
  }

  /// PyG's GATv2Conv adds a bias to its result. The shares of attention sum to 1, so the bias of
  /// the sources has the same effect; that of the destinations restores the scores.
  void split_bias(const std::string& pyg) {
    const auto bias = in_file_.find(pyg + "bias"), sources = in_file_.find(pyg + "lin_l.bias"),
               destinations = in_file_.find(pyg + "lin_r.bias");
    for (const auto& it : {bias, sources, destinations}) {
      if (it == in_file_.end() || !it->second.is_floating_point() ||
          it->second.sizes() != bias->second.sizes()) {
        return;
      }
    }
    const at::Tensor added = bias->second.to(at::kDouble);
    sources->second = sources->second + added;
    destinations->second = destinations->second - added;
    in_file_.erase(bias);
  }

  NamedTensors in_file_;
  std::map<std::string, std::string> names_;  // PyG's, by own names
};

}  // namespace

PygTensors from_pyg(const torch::nn::Module& module, const NamedTensors& own,
                    NamedTensors in_file) {
  PygTranslation translation(in_file);
  translation.visit(module, "", "");
  if (!translation.is_pyg(own)) return {std::move(in_file), {}};
  return std::move(translation).result(own);
}

}  // namespace mezzo::nn::detail
