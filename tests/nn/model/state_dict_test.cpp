#include "mezzo/nn/model/state_dict.h"

#include <map>

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/gcn2_conv.h"
#include "mezzo/nn/conv/graph_conv.h"

#include "support/nn_reference.h"
#include "support/npy_writer.h"
#include "support/saved_state.h"

namespace mezzo::test::state_dict_test {
namespace {

using nn::GINConv;
using nn::GINConvOptions;
using nn::GraphConv;
using nn::load_state_dict;
using nn::SAGEConv;

/// The parameters and buffers of the module, copied to the CPU.
Entries entries_of(const torch::nn::Module& module) {
  Entries entries;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      entries.emplace_back(item.key(), item.value().detach().cpu().clone());
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return entries;
}

testing::AssertionResult same_entries(const Entries& a, const Entries& b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << a.size() << ", " << b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].first != b[i].first) {
      return testing::AssertionFailure() << a[i].first << ", " << b[i].first;
    }
    const auto same = same_bits(a[i].second, b[i].second);
    if (!same) return testing::AssertionFailure() << a[i].first << ": " << same.message();
  }
  return testing::AssertionSuccess();
}

/// Loads the parameters of `from` through a file into another module of the same kind.
template <class Module>
void expect_carried(const Module& from, Module to) {
  const TempFolder folder;
  to->to(test_device());
  const Entries expected = entries_of(*from);
  load_state_dict(*to, folder.write("model.pt", saved(expected)));
  EXPECT_TRUE(same_entries(entries_of(*to), expected));
  for (const at::Tensor& parameter : to->parameters()) {
    EXPECT_TRUE(parameter.requires_grad());
    EXPECT_EQ(parameter.device(), test_device());
  }
}

TEST(StateDict, carries_the_parameters_and_buffers_of_layers_over) {
  const auto graph_conv = [] { return GraphConv(3, 4); };
  expect_carried(graph_conv(), graph_conv());
  const auto lstm = [] { return SAGEConv(3, 4, {.aggregator = nn::Aggregator::kLstm}); };
  expect_carried(lstm(), lstm());
  for (const bool learn_eps : {false, true}) {
    const auto gin = [&](double eps) {
      return GINConv(GINConvOptions{.initial_eps = eps, .learn_eps = learn_eps},
                     torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4)));
    };
    expect_carried(gin(0.5), gin(0));
  }
  const auto gcn2 = [] {
    return nn::GCN2Conv(
        nn::GCN2ConvOptions{.in_features = 3, .layer = 2, .project_initial_features = false});
  };
  expect_carried(gcn2(), gcn2());
}

TEST(StateDict, numbers_get_the_dtype_of_the_module) {
  const TempFolder folder;
  for (const DTypeInfo& dtype : dtypes()) {
    GraphConv layer = placed(GraphConv(3, 2));
    layer->to(dtype.scalar);
    const at::Tensor weight = uniform({3, 2}, at::kDouble, 1), bias = integers({2}, at::kLong, 2);
    load_state_dict(*layer, folder.write("model.pt", saved({{"weight", weight}, {"bias", bias}})));
    EXPECT_EQ(layer->weight.scalar_type(), dtype.scalar);
    EXPECT_TRUE(exact_rounded(layer->weight, weight));
    EXPECT_TRUE(exact(layer->bias, bias));
  }
}

TEST(StateDict, views_are_read_as_what_they_show) {
  const TempFolder folder;
  GraphConv layer = placed(GraphConv(3, 2));
  const at::Tensor storage = uniform({2, 5}, at::kFloat, 3);
  const at::Tensor weight = storage.narrow(1, 1, 3).t(), bias = storage[0].narrow(0, 2, 2);
  load_state_dict(*layer, folder.write("model.pt", saved({{"bias", bias}, {"weight", weight}})));
  EXPECT_TRUE(exact(layer->weight, weight));
  EXPECT_TRUE(exact(layer->bias, bias));
}

struct Two : torch::nn::Module {
  Two() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
  }
  SAGEConv conv1{3, 4};
  GraphConv conv2{4, 2};
};

/// The entries with `prefix` before each name.
Entries prefixed(const std::string& prefix, Entries entries) {
  for (auto& [name, tensor] : entries) name.insert(0, prefix);
  return entries;
}

TEST(StateDict, paths_say_where_submodules_are_in_the_file) {
  const TempFolder folder;
  const auto expect_loaded = [&](const Entries& expected, const Entries& in_file,
                                 const std::map<std::string, std::string>& paths) {
    Two module;
    load_state_dict(module, folder.write("model.pt", saved(in_file)), paths);
    EXPECT_TRUE(same_entries(entries_of(module), expected));
  };
  const Two from;
  const Entries expected = entries_of(from);
  Entries renamed = prefixed("encoder.0.", entries_of(*from.conv1));
  for (auto& entry : prefixed("conv1.", entries_of(*from.conv2))) renamed.push_back(entry);
  expect_loaded(expected, renamed, {{"conv1", "encoder.0"}, {"conv2", "conv1"}});
  expect_loaded(expected, prefixed("model.", expected), {{"", "model"}});
  expect_loaded(expected, prefixed("module.", expected), {});  // DistributedDataParallel
  expect_loaded(expected, prefixed("model.module.", expected), {{"", "model"}});

  Two module;
  const std::string path = folder.write("model.pt", saved(renamed));
  const auto fault = [&](const std::map<std::string, std::string>& paths) {
    const Entries before = entries_of(module);
    const std::string text = error_of([&] { load_state_dict(module, path, paths); });
    EXPECT_TRUE(same_entries(entries_of(module), before));
    return text;
  };
  EXPECT_TRUE(mentions(fault({{"conv1", "encoder.1"}, {"conv2", "conv1"}}),
                       "conv1.fc_self.bias(inthefile:encoder.1.fc_self.bias)",
                       "unexpectednames[encoder.0.fc_neigh.weight,encoder.0.fc_self.bias"));
  EXPECT_TRUE(mentions(fault({{"conv3", "conv1"}, {"conv1.weight", "w"}}),
                       "expectednamesofsubmodules,got[conv1.weight,conv3]"));
}

TEST(StateDict, names_of_older_versions_of_dgl_are_read) {
  const TempFolder folder;
  const at::Tensor neigh = at::full({2, 3}, 2.F), own = at::full({2, 3}, 3.F),
                   bias = at::full({2}, 4.F);
  SAGEConv sage(3, 2);  // before 1.0
  load_state_dict(
      *sage,
      folder.write("a.pt",
                   saved({{"bias", bias}, {"fc_neigh.weight", neigh}, {"fc_self.weight", own}})));
  EXPECT_TRUE(exact(sage->fc_self->bias, bias));
  EXPECT_TRUE(exact(sage->fc_self->weight, own));
  nn::GATConv gat(3, 2, {.residual = true});  // before 1.1
  load_state_dict(*gat, folder.write("a.pt", saved({{"attn_l", at::ones({1, 1, 2})},
                                                    {"attn_r", at::ones({1, 1, 2})},
                                                    {"bias", bias},
                                                    {"fc.weight", neigh},
                                                    {"res_fc.weight", own}})));
  EXPECT_TRUE(exact(gat->res_fc->bias, bias));
  EXPECT_TRUE(exact(gat->res_fc->weight, own));
}

/// The InvalidArgument message for a file of these entries; the module must not change.
std::string refusal(torch::nn::Module& module, const Entries& entries) {
  const TempFolder folder;
  const std::string path = folder.write("model.pt", saved(entries));
  const Entries before = entries_of(module);
  const std::string text = error_of([&] { load_state_dict(module, path); });
  EXPECT_TRUE(mentions(text, "load_state_dict:expectedin" + path));
  EXPECT_TRUE(same_entries(entries_of(module), before));
  return text;
}

TEST(StateDict, other_names_shapes_and_kinds_of_numbers_are_errors_that_change_nothing) {
  SAGEConv layer = placed(SAGEConv(3, 2));
  const at::Tensor neigh = at::ones({2, 3}), own = at::ones({2, 3}), bias = at::ones({2});
  const std::string renamed =
      refusal(*layer, {{"offset", bias}, {"fc_neigh.weight", neigh}, {"fc_self.weight", own}});
  EXPECT_TRUE(mentions(renamed, "missingnames[fc_self.bias]andunexpectednames[offset]"));
  EXPECT_TRUE(mentions(refusal(*layer, {}),
                       "missingnames[fc_neigh.weight,fc_self.bias,fc_self.weight]and"
                       "unexpectednames[]"));
  const auto with_bias = [&](const at::Tensor& other) {
    return refusal(*layer,
                   {{"fc_neigh.weight", neigh}, {"fc_self.weight", own}, {"fc_self.bias", other}});
  };
  for (const at::Tensor& other : {at::ones({3}), at::ones({1, 2}), at::scalar_tensor(1.0)}) {
    const std::string text = with_bias(other);
    EXPECT_TRUE(mentions(text, "'fc_self.bias'asthemodule'sfloat32[2],got"));
  }
  const std::string all = refusal(
      *layer,
      {{"fc_neigh.weight", own}, {"fc_self.weight", bias}, {"fc_self.bias", at::ones({4})}});
  EXPECT_TRUE(mentions(all,
                       "'fc_self.bias'asthemodule'sfloat32[2],gotfloat32[4];"
                       "'fc_self.weight'asthemodule'sfloat32[2,3],gotfloat32[2]"));

  torch::nn::BatchNorm1d norm(2);
  norm->to(test_device());
  Entries floating = entries_of(*norm);
  for (auto& [name, tensor] : floating) tensor = tensor.to(at::kFloat);
  EXPECT_TRUE(mentions(refusal(*norm, floating), "'num_batches_tracked'asthemodule'sint64[],got"));
}

TEST(StateDict, values_beyond_the_range_of_the_module_are_an_error_that_changes_nothing) {
  GraphConv layer = placed(GraphConv(3, 2));
  const auto entries = [](double value) {
    at::Tensor weight = at::ones({3, 2});
    weight[1][1] = value;
    return Entries{{"bias", at::zeros({2})}, {"weight", weight}};
  };
  const TempFolder folder;
  const auto load = [&](double value) {
    load_state_dict(*layer, folder.write("model.pt", saved(entries(value))));
  };
  layer->to(at::kHalf);
  load(65504);
  load(std::numeric_limits<double>::infinity());  // infinite before as well
  EXPECT_TRUE(mentions(refusal(*layer, entries(-70000)),
                       "'weight'ofvaluesthatfitthemodule'sfloat16[3,2],thelargestis70000"));
  layer->to(at::kBFloat16);
  load(70000);
  EXPECT_TRUE(mentions(refusal(*layer, entries(3.4e38)), "module'sbfloat16[3,2],thelargestis3.39"));
}

/// The IoError message for the file; the module must not change.
std::string fault(const std::string& path) {
  GraphConv layer(3, 2);
  const Entries before = entries_of(*layer);
  const std::string text = error_of<IoError>([&] { load_state_dict(*layer, path); });
  EXPECT_TRUE(mentions(text, path));
  EXPECT_TRUE(same_entries(entries_of(*layer), before));
  return text;
}

TEST(StateDict, files_that_are_not_there_or_of_another_kind_are_errors) {
  const TempFolder folder;
  EXPECT_TRUE(mentions(fault(folder.path("nothing.pt")), "nosuchfile"));
  EXPECT_TRUE(mentions(fault(folder.path("nothing.safetensors")), "nosuchfile"));
  EXPECT_TRUE(mentions(fault(folder.path()), "notaregularfile"));
  EXPECT_TRUE(mentions(fault(folder.write("empty", "")), "nofileoftorch.save"));
  EXPECT_TRUE(mentions(fault(folder.write("text", std::string(1000, 'x'))), "nofileoftorch.save"));
  EXPECT_TRUE(
      mentions(fault(folder.write("array.npz", npz_bytes({{"a", "b"}}))), "nofileoftorch.save"));
  const at::Tensor tensor = at::ones({2});
  EXPECT_TRUE(
      mentions(fault(folder.write("a.safetensors", saved({{"a", tensor}}))), "no.safetensorsfile"));
  EXPECT_TRUE(mentions(fault(folder.write("tensor", bytes_of(tensor))), "holdsnodict"));
  c10::Dict<std::int64_t, at::Tensor> numbered;
  numbered.insert(1, tensor);
  EXPECT_TRUE(mentions(fault(folder.write("numbered", bytes_of(numbered))), "keysarenotstrings"));
  c10::Dict<std::string, std::int64_t> counts;
  counts.insert("epoch", 3);
  EXPECT_TRUE(mentions(fault(folder.write("counts", bytes_of(counts))), "under'epoch'"));
  const at::Tensor quantized = at::quantize_per_tensor(tensor, 0.5, 0, at::kQInt8);
  for (const at::Tensor& other : {tensor.to(at::kComplexFloat), quantized}) {
    EXPECT_TRUE(mentions(fault(folder.write("other", saved({{"a", other}}))), "isrefused"));
  }
}

TEST(StateDict, truncated_and_corrupt_files_are_errors) {
  const TempFolder folder;
  const at::Tensor weight = at::full({3, 2}, 0.4375), bias = at::zeros({2});
  const std::string whole = saved({{"weight", weight}, {"bias", bias}});
  const std::size_t sizes[] = {1, 64, whole.size() / 2, whole.size() - 30, whole.size() - 1};
  for (const std::size_t size : sizes) {
    SCOPED_TRACE(size);
    fault(folder.write("truncated.pt", std::string_view(whole).substr(0, size)));
  }
  // One of the weights: libtorch itself would take it.
  const auto* const data = reinterpret_cast<const char*>(weight.const_data_ptr<float>());
  const std::size_t place = whole.find(std::string(data, sizeof(float) * 6));
  ASSERT_NE(place, std::string::npos);
  std::string flipped = whole;
  flipped[place] = static_cast<char>(~flipped[place]);
  EXPECT_TRUE(mentions(fault(folder.write("flipped.pt", flipped)), "damagedzipmember:CRC"));
}

}  // namespace
}  // namespace mezzo::test::state_dict_test
