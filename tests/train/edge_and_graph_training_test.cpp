// Training on labels of edges and of graphs.
#include <cmath>

#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/mini_batches.h"
#include "train/synthetic.h"

namespace mezzo {
namespace {

constexpr std::int64_t kNodes = 60;
/// Well above what a model reaches that ignores its input: 0.5, and 0 of numbers.
constexpr double kLearnt = 0.8;

/// Labels of that kind whose first column is `number`, of two values.
void set_labels(Dataset& data, LabelKind kind, const at::Tensor& number) {
  const at::Tensor both = at::stack({number, 1 - number}, 1);
  data.num_classes = 2;
  if (kind == LabelKind::kClass) data.labels = number.to(at::kLong);
  if (kind == LabelKind::kClasses) data.labels = both.to(at::kByte);
  if (kind == LabelKind::kNumbers) data.labels = (100 * both).to(at::kFloat);
  data.metric = kind == LabelKind::kClass     ? Metric::kAccuracy
                : kind == LabelKind::kClasses ? Metric::kMicroF1
                                              : Metric::kR2;
  const at::Tensor place = at::arange(number.numel()).remainder(5);
  data.train_masks = place.lt(3).unsqueeze(1);
  data.val_masks = place.eq(3).unsqueeze(1);
  data.test_masks = place.eq(4).unsqueeze(1);
}

void remove_labels(Dataset& data) {
  data.target = TaskTarget::kNode;
  data.num_classes = 0;
  for (at::Tensor* column : {&data.labels, &data.train_masks, &data.val_masks, &data.test_masks}) {
    column->reset();
  }
}

/// Edges i -> i + 1 and i -> i + 7; whether the number of the source and that of the edge are
/// equal.
Dataset edges_with_labels(LabelKind kind) {
  Dataset data;
  data.name = "edges";
  data.num_nodes = kNodes;
  const at::Tensor nodes = at::arange(kNodes);
  data.src = nodes.repeat({2});
  data.dst = at::cat({nodes + 1, nodes + 7}).remainder(kNodes);
  const at::Tensor of_nodes = nodes.div(3, "floor").remainder(2).to(at::kFloat);
  data.features = at::stack({of_nodes, at::ones({kNodes})}, 1);
  const at::Tensor of_edges = at::arange(2 * kNodes).remainder(2).to(at::kFloat);
  data.edge_features = of_edges.unsqueeze(1);
  data.target = TaskTarget::kEdge;
  set_labels(data, kind, of_nodes.index_select(0, data.src).eq(of_edges).to(at::kLong));
  return data;
}

/// Paths of three to six nodes; whether they have at least five.
Dataset graphs_with_labels(LabelKind kind) {
  Dataset data;
  data.name = "graphs";
  const at::Tensor sizes = at::arange(40).remainder(4) + 3;
  data.graph_offsets = at::cat({at::zeros({1}, at::kLong), sizes.cumsum(0)});
  data.num_nodes = sizes.sum().item<std::int64_t>();
  const at::Tensor graph = at::arange(40).repeat_interleave(sizes);
  const at::Tensor inside = graph.slice(0, 1).eq(graph.slice(0, 0, -1)).nonzero().squeeze(1);
  data.src = at::cat({inside, inside + 1});
  data.dst = at::cat({inside + 1, inside});
  data.features = at::ones({data.num_nodes, 2});
  data.target = TaskTarget::kGraph;
  set_labels(data, kind, sizes.ge(5).to(at::kLong));
  return data;
}

TrainOptions task_options() {
  TrainOptions options = test::quick_options();
  options.model = nn::ModelKind::kGin;
  options.readout = ReduceOp::kSum;
  options.epochs = 120;
  options.dropout = 0;
  options.weight_decay = 0;
  options.hidden = 16;
  return options;
}

constexpr LabelKind kKinds[] = {LabelKind::kClass, LabelKind::kClasses, LabelKind::kNumbers};

TEST(EdgeAndGraphTraining, every_task_is_learnt_in_each_precision) {
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    for (const LabelKind kind : kKinds) {
      for (const Dataset& data : {edges_with_labels(kind), graphs_with_labels(kind)}) {
        data.validate();
        SCOPED_TRACE(std::string(amp::to_string(precision)) + " " +
                     std::string(name_of(Tasks{}, data.task())));
        TrainOptions options = task_options();
        options.precision = precision;
        const TrainReport report = train(data, options);
        EXPECT_GT(report.best.val, kLearnt);
        EXPECT_GT(report.best.test, kLearnt);
      }
    }
  }
}

TEST(EdgeAndGraphTraining, a_checkpoint_is_resumed_evaluated_and_predicted_from) {
  for (const Dataset& data :
       {edges_with_labels(LabelKind::kNumbers), graphs_with_labels(LabelKind::kClass)}) {
    const test::TempFolder folder;
    TrainOptions options = task_options();
    options.epochs = 12;
    options.checkpoint = folder.path("whole");
    const TrainReport whole = train(data, options);
    options.epochs = 5;
    options.checkpoint = folder.path("part");
    train(data, options);
    options.epochs = 12;
    options.resume = folder.path("part");
    EXPECT_EQ(train(data, options).losses, whole.losses);

    const TrainedModel trained = load_checkpoint(folder.path("whole"));
    EXPECT_EQ(trained.data.task, data.task());
    EXPECT_EQ(evaluate(data, trained).val, whole.best.val);
    const at::Tensor all = trained.logits(data);
    EXPECT_EQ(all.size(0), data.num_targets());
    const at::Tensor some = at::tensor({7, 3}, at::kLong);
    EXPECT_TRUE(at::equal(trained.logits(data, some), all.index_select(0, some)));
    EXPECT_THROWS(InvalidArgument, std::to_string(data.num_targets()),
                  trained.logits(data, at::tensor({data.num_targets()}, at::kLong)));
    write_csv(folder.path("p.csv"), predict(data, trained));
    EXPECT_TRUE(test::read_file(folder.path("p.csv"))
                    .starts_with(data.target == TaskTarget::kEdge ? "edge,y0,y1\n"
                                                                  : "graph,class,probability\n"));
    // Unlabelled data, whose target only the model knows.
    Dataset unlabelled = data;
    remove_labels(unlabelled);
    EXPECT_TRUE(at::equal(trained.logits(unlabelled), all));
  }
}

TEST(EdgeAndGraphTraining, what_does_not_fit_is_an_error) {
  const Dataset edges = edges_with_labels(LabelKind::kClass);
  const Dataset graphs = graphs_with_labels(LabelKind::kClass);
  TrainOptions options = task_options();
  options.epochs = 1;
  const TrainedModel of_edges = train(edges, options).trained;
  const TrainedModel of_graphs = train(graphs, options).trained;
  Dataset plain = edges;
  plain.edge_features.reset();
  EXPECT_THROWS(InvalidArgument, test::fragments("1 features of edges", "have 0"),
                of_edges.logits(plain));
  EXPECT_THROWS(InvalidArgument, test::fragments("graph-class", "edge-class"),
                of_graphs.logits(edges));
  remove_labels(plain);
  EXPECT_THROWS(InvalidArgument, "set of graphs", of_graphs.logits(plain));
  options.sampling = test::sampled_options(SamplerKind::kNeighbor).sampling;
  EXPECT_THROWS(InvalidArgument, test::fragments("sampling", "graphs"), train(graphs, options));
}

}  // namespace
}  // namespace mezzo
