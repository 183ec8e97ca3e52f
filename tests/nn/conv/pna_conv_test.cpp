#include "mezzo/nn/conv/pna_conv.h"

#include "support/edge_layer_reference.h"

namespace mezzo::test::pna_conv_test {
namespace {

using nn::PnaAggregator;
using nn::PNAConv;
using nn::PNAConvOptions;
using nn::PnaScaler;
using nn::PNATowerImpl;

constexpr std::int64_t kNodes = 7, kIn = 6, kEdge = 4;
constexpr double kDelta = 1.3;

const std::vector<PnaScaler> kScalers = {PnaScaler::kIdentity, PnaScaler::kAmplification,
                                         PnaScaler::kAttenuation};

/// Node 0 has no in-edges; the others have several.
const Topology& graph() {
  static const Topology g =
      topology_of({0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 3, 5, 6, 2, 4, 1, 0, 6, 5},
                  {1, 2, 3, 4, 5, 6, 4, 2, 3, 4, 5, 1, 1, 2, 6, 6, 6, 6, 3, 3}, kNodes, kNodes);
  return g;
}

at::Tensor rows(at::ScalarType dtype = at::kDouble) {
  return uniform({kNodes, kIn}, at::kBFloat16, 1).to(dtype);
}
at::Tensor edges(at::ScalarType dtype = at::kDouble) {
  return uniform({graph().num_edges(), kEdge}, at::kBFloat16, 2).to(dtype);
}

/// One aggregator of the messages [d, F] of a node.
at::Tensor aggregate(const at::Tensor& m, PnaAggregator aggregator) {
  const auto moment = [&](double order) {
    const at::Tensor mean = (m - m.mean(0)).pow(order).mean(0);
    return mean.sign() * (mean.abs() + 1e-30).pow(1 / order);
  };
  switch (aggregator) {
    case PnaAggregator::kMean:
      return m.mean(0);
    case PnaAggregator::kSum:
      return m.sum(0);
    case PnaAggregator::kMax:
      return m.amax(0);
    case PnaAggregator::kMin:
      return m.amin(0);
    case PnaAggregator::kStd:
      return ((m - m.mean(0)).square().mean(0) + 1e-30).sqrt();
    case PnaAggregator::kVar:
      return (m - m.mean(0)).square().mean(0);
    case PnaAggregator::kMoment3:
      return moment(3);
    case PnaAggregator::kMoment4:
      return moment(4);
    case PnaAggregator::kMoment5:
      return moment(5);
  }
  return {};
}

double scale(PnaScaler scaler, std::int64_t degree) {
  const double log = std::log(static_cast<double>(degree) + 1);
  if (scaler == PnaScaler::kIdentity) return 1;
  return scaler == PnaScaler::kAmplification ? log / kDelta : kDelta / log;
}

/// The definition, by loops over towers and nodes, with concatenated inputs. counts: the numbers of
/// nodes of the graphs of a batch. Batch normalization with the weights that it starts with.
Outputs define(const PNAConv& layer, const at::Tensor& h, const at::Tensor& e,
               const std::vector<std::int64_t>& counts = {kNodes}) {
  const auto& options = layer->options;
  const Topology& g = graph();
  std::vector<at::Tensor> norms, of_towers;
  for (const std::int64_t count : counts) {
    norms.push_back(at::full({count, 1}, 1 / std::sqrt(static_cast<double>(count)), h.options()));
  }
  for (std::size_t i = 0; i < layer->towers->size(); ++i) {
    const auto& tower = layer->towers->at<PNATowerImpl>(i);
    const at::Tensor own = h.narrow(1, static_cast<std::int64_t>(i) * tower.in, tower.in);
    std::vector<at::Tensor> input = {rows_of_sources(g, own), rows_of_destinations(g, own)};
    if (options.edge_features > 0) input.push_back(e);
    const at::Tensor messages = plain(tower.M, at::cat(input, 1));
    std::vector<at::Tensor> updates;
    for (std::int64_t v = 0; v < kNodes; ++v) {
      const at::Tensor of_v = messages.index_select(0, (g.dst() == v).nonzero().squeeze(1));
      std::vector<at::Tensor> parts = {own[v]};
      for (const PnaScaler scaler : options.scalers) {
        for (const PnaAggregator aggregator : options.aggregators) {
          parts.push_back(of_v.size(0) == 0
                              ? at::zeros({tower.in}, h.options())
                              : scale(scaler, of_v.size(0)) * aggregate(of_v, aggregator));
        }
      }
      updates.push_back(at::cat(parts));
    }
    const at::Tensor out = plain(tower.U, at::stack(updates)) * at::cat(norms);
    const at::Tensor centred = out - out.mean(0);
    of_towers.push_back(centred / (centred.square().mean(0) + 1e-5).sqrt());
  }
  const auto& mixing = layer->mixing_layer->at<torch::nn::LinearImpl>(0);
  const at::Tensor mixed = at::leaky_relu(
      dense_linear(at::cat(of_towers, 1), mixing.weight, mixing.bias, Numbers::kGiven), 0.01);
  return {options.residual && options.in_features == options.out_features ? mixed + h : mixed};
}

PNAConv make(std::int64_t out, PNAConvOptions options) {
  if (options.aggregators.empty()) {
    options.aggregators = {PnaAggregator::kMean, PnaAggregator::kMax, PnaAggregator::kMin,
                           PnaAggregator::kStd};
  }
  options.scalers = kScalers;
  options.delta = kDelta;
  PNAConv layer(kIn, out, std::move(options));
  layer->to(test_device(), at::kDouble);
  return layer;
}

at::Tensor edges_of(const PNAConv& layer, at::ScalarType dtype = at::kDouble) {
  return layer->options.edge_features > 0 ? edges(dtype) : at::Tensor();
}

TEST(PNAConv, equals_the_definition_in_every_precision) {
  for (const std::int64_t edge_features : {std::int64_t{0}, kEdge}) {
    for (const std::int64_t num_towers : {1, 2}) {
      SCOPED_TRACE(testing::Message() << edge_features << " of edges, towers " << num_towers);
      PNAConv layer = make(num_towers == 1 ? kIn : 4,
                           {.num_towers = num_towers, .edge_features = edge_features});
      expect_in_every_precision(
          *layer,
          [&](at::ScalarType dtype) {
            return outputs_of(layer(graph(), rows(dtype), edges_of(layer, dtype)));
          },
          [&] { return define(layer, rows(), edges()); });
    }
  }
}

TEST(PNAConv, every_aggregator_equals_its_definition_and_has_gradients) {
  for (std::size_t i = 0; i < nn::kPnaAggregatorNames.size(); ++i) {
    for (const std::int64_t edge_features : {std::int64_t{0}, kEdge}) {
      SCOPED_TRACE(std::string(nn::kPnaAggregatorNames.at(i)));
      PNAConv layer =
          make(4, {.aggregators = {static_cast<PnaAggregator>(i)}, .edge_features = edge_features});
      const auto run = [&](const at::Tensor& h, const at::Tensor& e) {
        return outputs_of(layer(graph(), h, e));
      };
      expect_near_outputs(run(rows(), edges_of(layer)), define(layer, rows(), edges()),
                          at::kDouble);
      // Two in-edges have odd moments of 0, where the root has no derivative.
      if (layer->options.aggregators[0] == PnaAggregator::kMoment3 ||
          layer->options.aggregators[0] == PnaAggregator::kMoment5) {
        continue;
      }
      std::vector<at::Tensor> inputs = {rows()};
      if (edge_features > 0) inputs.push_back(edges());
      EXPECT_TRUE(gradcheck(
          [&](const auto& x) { return run(x[0], x.size() > 1 ? x[1] : at::Tensor())[0]; }, inputs));
    }
  }
}

TEST(PNAConv, gradients_of_parameters_agree_with_differences) {
  PNAConv layer = make(4, {.num_towers = 2, .edge_features = kEdge});
  EXPECT_TRUE(module_gradcheck(*layer, [&](const auto& x) { return layer(graph(), x[0], x[1]); },
                               {rows(), edges()}));
}

TEST(PNAConv, divides_by_the_nodes_of_each_graph_and_takes_sparse_rows) {
  PNAConv layer = make(4, {});
  const at::Tensor got =
      layer(graph(), rows(), at::Tensor(), at::tensor({3, 0, 4}, at::TensorOptions(at::kLong)));
  expect_near_outputs({got}, define(layer, rows(), {}, {3, 0, 4}), at::kDouble);
  EXPECT_TRUE(same_bits(layer(graph(), rows().to_sparse_csr()), layer(graph(), rows())));
}

TEST(PNAConv, a_constant_far_off_leaves_the_deviations_in_sixteen_bits) {
  PNAConv layer = make(4, {.aggregators = {PnaAggregator::kStd}});
  layer->to(at::kFloat);
  auto& tower = layer->towers->at<PNATowerImpl>(0);
  {
    const at::NoGradGuard no_grad;
    tower.M->bias.fill_(100);  // of every message of a node: its variance does not see it
  }
  at::Tensor got;
  {
    const amp::PrecisionScope scope(amp::Precision::kBFloat16, test_device());
    got = layer(graph(), rows(at::kFloat));
  }
  expect_near_outputs({got}, define(layer, rows(), {}), at::kBFloat16);
}

TEST(PNAConv, dropout_changes_training_alone) {
  PNAConv layer = make(4, {.dropout = 0.5});
  const auto run = [&] { return layer(graph(), rows()); };
  EXPECT_FALSE(same_bits(run(), run()));
  layer->eval();
  EXPECT_TRUE(same_bits(run(), run()));
}

TEST(PNAConv, has_the_names_of_dgl) {
  const PNAConv layer = make(4, {.num_towers = 2, .edge_features = kEdge});
  std::set<std::string> expected = {"mixing_layer.0.weight [4, 4]", "mixing_layer.0.bias [4]"};
  for (const std::string tower : {"towers.0.", "towers.1."}) {
    for (const char* rest : {"M.weight [3, 10]", "M.bias [3]", "U.weight [2, 39]", "U.bias [2]",
                             "batchnorm.weight [2]", "batchnorm.bias [2]"}) {
      expected.insert(tower + rest);
    }
  }
  EXPECT_EQ(parameter_shapes(*layer), expected);
  EXPECT_TRUE(layer->named_buffers().contains("towers.1.batchnorm.running_var"));
}

TEST(PNAConv, wrong_arguments_are_errors_that_name_them) {
  const auto error = [](const PNAConvOptions& options) {
    return error_of([&] { PNAConv layer(kIn, 4, options); });
  };
  PNAConvOptions good;
  good.aggregators = {PnaAggregator::kMean};
  good.scalers = kScalers;
  good.delta = kDelta;
  const auto with = [&](auto change) {
    PNAConvOptions options = good;
    change(options);
    return error(options);
  };
  EXPECT_TRUE(
      mentions(with([](auto& o) { o.delta = 0; }), "PNAConv:expectedapositive,finitedelta"));
  EXPECT_TRUE(mentions(with([](auto& o) { o.num_towers = 4; }),
                       "PNAConv:expectednum_towersthatdividesin_featuresandout_features,6and4"));
  EXPECT_TRUE(mentions(with([](auto& o) { o.aggregators.clear(); }), "atleastoneofaggregators"));
  EXPECT_TRUE(mentions(with([](auto& o) { o.edge_features = -1; }), "edge_featuresofatleast0"));
  PNAConv plain_layer = placed(PNAConv(kIn, 4, good));
  good.edge_features = kEdge;
  PNAConv layer = placed(PNAConv(kIn, 4, good));
  const at::Tensor h = rows(at::kFloat), e = edges(at::kFloat);
  EXPECT_ERROR("PNAConv:expectedfloatingh[7,6]", layer(graph(), h.narrow(1, 0, 5), e));
  EXPECT_ERROR("PNAConv:expectedfloating,stridededge_features[20,4]", layer(graph(), h));
  EXPECT_ERROR("PNAConv:expectednoedge_features", plain_layer(graph(), h, e));
  EXPECT_ERROR("PNAConv:expectedbatch_num_nodesint64",
               plain_layer(graph(), h, at::Tensor(), ids({3, 3})));
  EXPECT_ERROR("onesetofnodes", plain_layer(random_topology(7, 5, 9, 3), h));
  EXPECT_ERROR("atleast2rows", plain_layer(topology_of({}, {}, 1, 1), h.narrow(0, 0, 1)));
}

}  // namespace
}  // namespace mezzo::test::pna_conv_test
