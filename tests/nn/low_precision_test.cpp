// Checks that a 16-bit region keeps tensors in 16 bits between layers: no operation of the forward
// or backward creates a float32 tensor the size of the hidden features or of the edges.
#include <memory>
#include <mutex>

#include <ATen/record_function.h>

#include "mezzo/amp/precision.h"
#include "mezzo/nn/conv/aggregation_layers.h"
#include "mezzo/nn/conv/attention_layers.h"
#include "mezzo/nn/conv/graph_conv.h"
#include "mezzo/nn/model/mlp.h"
#include "mezzo/nn/model/model.h"

#include "support/nn_reference.h"

namespace mezzo::test::low_precision_test {
namespace {

using amp::Precision;
using nn::Model;
using nn::ModelKind;
using nn::ModelKinds;
using nn::ModelOptions;

/// Records the operations that return a float32 or float64 tensor of at least `smallest` elements
/// during the object's life, on any thread.
class WideOutputs {
 public:
  explicit WideOutputs(std::int64_t smallest) {
    const std::lock_guard lock(mutex());
    limit() = smallest;
    outputs().clear();
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&begin, &end)
                                        .needsOutputs(true)
                                        .scopes({at::RecordScope::FUNCTION}));
  }
  ~WideOutputs() { at::removeCallback(handle_); }
  WideOutputs(const WideOutputs&) = delete;
  WideOutputs& operator=(const WideOutputs&) = delete;

  static std::vector<std::string> list() {
    const std::lock_guard lock(mutex());
    return outputs();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::int64_t& limit() {
    static std::int64_t elements = 0;
    return elements;
  }
  static std::vector<std::string>& outputs() {
    static std::vector<std::string> operations;
    return operations;
  }
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction&) { return nullptr; }
  static void end(const at::RecordFunction& function, at::ObserverContext*) {
    const std::lock_guard lock(mutex());
    for (const c10::IValue& output : function.outputs()) {
      if (!output.isTensor() || !output.toTensor().defined()) continue;
      const at::Tensor& tensor = output.toTensor();
      const bool is_float32 =
          tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
      if (!is_float32 || tensor.layout() != at::kStrided || tensor.numel() < limit()) continue;
      outputs().push_back(fmt::format("{} [{}]", function.name(), fmt::join(tensor.sizes(), ", ")));
    }
  }

  at::CallbackHandle handle_ = 0;
};

std::string lines(const std::vector<std::string>& texts) {
  return fmt::format("{}", fmt::join(texts, "\n"));
}

// Sizes that distinguish the tensors by number of elements: inputs [N, 4], logits [N, 2],
// statistics per node and the float32 blocks of 2048 rows in a product have at most 32,768
// elements; edges have 120,000, hidden features 128,000.
constexpr std::int64_t kNodes = 8000, kEdges = 112000, kIn = 4, kHidden = 16, kClasses = 2;
constexpr std::int64_t kWide = 120000;
static_assert(kNodes * kHidden >= kWide && kEdges + kNodes >= kWide && kNodes * kIn < kWide / 3);
// The fused attention keeps float32 numbers per node and head, and in its backward one per edge and
// head (decision 13): 480,000. Hidden features of four heads are 512,000.
constexpr std::int64_t kHeads = 4, kWideOfHeads = 500000;
static_assert((kEdges + kNodes) * kHeads < kWideOfHeads);
static_assert(kNodes * kHeads * kHidden >= kWideOfHeads);

std::int64_t smallest_wide(ModelKind kind) {
  return kind == ModelKind::kGat ? kWideOfHeads : kWide;
}

const Topology& graph() {
  static const Topology topology = connected(kNodes, kNodes, kEdges, 1);
  return topology;
}

ModelOptions options(ModelKind kind) {
  return {.kind = kind,
          .in_features = kIn,
          .hidden_features = kHidden,
          .out_features = kClasses,
          .num_layers = 3,
          .num_heads = kHeads,
          .attention_dropout = kind == ModelKind::kGat ? 0.1 : 0,
          .num_output_heads = 2};
}

/// One forward in `precision` and its backward; the loss is float32.
double train_once(Model& model, const at::Tensor& x, Precision precision) {
  const at::Tensor labels = integers({kNodes}, at::kLong, 3, 0, kClasses - 1);
  at::Tensor loss;
  {
    const amp::PrecisionScope scope(precision, test_device());
    loss = at::cross_entropy_loss(model(graph(), x).to(at::kFloat), labels);
  }
  loss.backward();
  return loss.item<double>();
}

std::vector<std::string> wide_outputs(Model& model, const at::Tensor& x, Precision precision) {
  train_once(model, x, precision);  // what is built or measured once per process
  const WideOutputs recorder(smallest_wide(model->options.kind));
  EXPECT_TRUE(std::isfinite(train_once(model, x, precision)));
  return WideOutputs::list();
}

void expect_narrow(const ModelOptions& model_options, bool sparse = false) {
  for (const Precision precision : {Precision::kBFloat16, Precision::kFloat16}) {
    SCOPED_TRACE(fmt::format("{} in {}{}", name_of(ModelKinds{}, model_options.kind),
                             amp::to_string(precision), sparse ? ", sparse input" : ""));
    Model model = placed(Model(model_options));
    at::Tensor x = uniform({kNodes, kIn}, at::kFloat, 2);
    if (sparse) x = x.to_sparse_csr();
    const auto outputs = wide_outputs(model, x, precision);
    EXPECT_TRUE(outputs.empty()) << lines(outputs);
    for (const auto& parameter : model->named_parameters()) {
      ASSERT_TRUE(parameter.value().grad().defined()) << parameter.key();
      EXPECT_EQ(parameter.value().grad().scalar_type(), at::kFloat) << parameter.key();
      EXPECT_TRUE(parameter.value().grad().isfinite().all().item<bool>()) << parameter.key();
    }
  }
}

constexpr ModelKind kKinds[] = {ModelKind::kGcn, ModelKind::kSage, ModelKind::kGat,
                                ModelKind::kMlp};

TEST(LowPrecision, the_recorder_sees_wide_outputs_of_a_float32_run) {
  for (const ModelKind kind : kKinds) {
    Model model = placed(Model(options(kind)));
    const auto outputs =
        wide_outputs(model, uniform({kNodes, kIn}, at::kFloat, 2), Precision::kFloat32);
    EXPECT_FALSE(outputs.empty()) << name_of(ModelKinds{}, kind);
  }
}

TEST(LowPrecision, forward_and_backward_of_every_kind_stay_in_sixteen_bits) {
  for (const ModelKind kind : kKinds) expect_narrow(options(kind));
}

TEST(LowPrecision, so_they_do_with_skips_and_normalization) {
  for (const ModelKind kind : kKinds) {
    for (const auto normalization : {nn::Normalization::kLayer, nn::Normalization::kBatch}) {
      ModelOptions all = options(kind);
      all.skip = true;
      all.normalization = normalization;
      expect_narrow(all);
    }
  }
}

TEST(LowPrecision, so_they_do_with_sparse_input) {
  for (const ModelKind kind : kKinds) expect_narrow(options(kind), /*sparse=*/true);
}

TEST(LowPrecision, so_they_do_with_every_aggregator) {
  for (const nn::Aggregator aggregator : {nn::Aggregator::kGcn, nn::Aggregator::kPool}) {
    ModelOptions with = options(ModelKind::kSage);
    with.aggregator = aggregator;
    expect_narrow(with);
  }
}

/// The dtypes that `layer` gives in both 16-bit regions, of float32 rows, strided and sparse.
template <class Run>
void expect_dtypes(Run run, std::int64_t in_features) {
  for (const auto& [precision, dtype] : {std::pair(Precision::kBFloat16, at::kBFloat16),
                                         std::pair(Precision::kFloat16, at::kHalf)}) {
    const at::Tensor x = uniform({20, in_features}, at::kFloat, 5);
    const amp::PrecisionScope scope(precision, test_device());
    EXPECT_EQ(run(x).scalar_type(), dtype);
    EXPECT_EQ(run(x.to(dtype)).scalar_type(), dtype);
    EXPECT_EQ(run(x.to_sparse_csr()).scalar_type(), dtype);
  }
}

TEST(LowPrecision, parts_in_float32_have_float32_parameters) {
  Model model = placed(
      Model(kIn, kClasses, {.kind = ModelKind::kMlp, .dropout = 0, .keep_float32 = {"layer1"}}));
  model->to(at::kBFloat16);
  const Topology g = connected(20, 20, 60, 4);
  const at::Tensor x = uniform({20, kIn}, at::kBFloat16, 5);
  const amp::PrecisionScope scope(Precision::kBFloat16, test_device());
  EXPECT_ERROR("keep_float32:expectedfloat32parametersoflayer1,gotBFloat16", model(g, x));
  model->named_children()["layer1"]->to(at::kFloat);
  EXPECT_EQ(model(g, x).scalar_type(), at::kFloat);
}

TEST(LowPrecision, a_float32_layer_in_a_region_gives_sixteen_bits) {
  const Topology g = connected(20, 20, 60, 4);
  for (const std::int64_t out : {3, 6}) {  // either order of product and aggregation
    nn::GraphConv gcn(4, out);
    gcn->to(test_device());
    const at::Tensor weight = uniform({g.num_edges()}, at::kFloat, 6);  // float32 beside the rows
    expect_dtypes([&](const at::Tensor& x) { return gcn(g, x, weight); }, 4);
    for (const nn::Aggregator aggregator :
         {nn::Aggregator::kMean, nn::Aggregator::kGcn, nn::Aggregator::kPool}) {
      nn::SAGEConv sage(4, out, {.aggregator = aggregator});
      sage->to(test_device());
      expect_dtypes([&](const at::Tensor& x) { return sage(g, x); }, 4);
    }
  }
  for (const std::int64_t in : {4, 6}) {  // 6: the residual is the identity
    nn::GATConv gat(in, 3, {.num_heads = 2, .residual = true});
    gat->to(test_device());
    expect_dtypes([&](const at::Tensor& x) { return gat(g, x); }, in);
  }
  nn::MLP mlp = placed(nn::MLP(4, 3));
  expect_dtypes([&](const at::Tensor& x) { return mlp(x); }, 4);
}

}  // namespace
}  // namespace mezzo::test::low_precision_test
