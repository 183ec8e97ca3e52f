// Training on labels of edges and of graphs.
#include <cmath>

#include "mezzo/train/files/checkpoint.h"
#include "mezzo/train/trained_model.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tolerance.h"
#include "train/checkpoints.h"
#include "train/targets.h"

namespace mezzo {
namespace {

using test::edges_with_labels;
using test::graphs_with_labels;
using test::task_options;

void remove_labels(Dataset& data) {
  data.target = TaskTarget::kNode;
  data.num_classes = 0;
  for (at::Tensor* column : {&data.labels, &data.train_masks, &data.val_masks, &data.test_masks}) {
    column->reset();
  }
}

TEST(EdgeAndGraphTraining, every_task_is_learnt_in_each_precision) {
  for (const amp::Precision precision :
       {amp::Precision::kFloat32, amp::Precision::kBFloat16, amp::Precision::kFloat16}) {
    for (const LabelKind kind : test::kLabelKinds) {
      for (const Dataset& data : {edges_with_labels(kind), graphs_with_labels(kind)}) {
        data.validate();
        SCOPED_TRACE(std::string(amp::to_string(precision)) + " " +
                     std::string(name_of(Tasks{}, data.task())));
        TrainOptions options = task_options(data.target);
        options.precision = precision;
        const TrainReport report = train(data, options);
        EXPECT_GT(report.best.val, test::kLearnt);
        EXPECT_GT(report.best.test, test::kLearnt);
      }
    }
  }
}

TEST(EdgeAndGraphTraining, a_checkpoint_is_resumed_evaluated_and_predicted_from) {
  for (const Dataset& data :
       {edges_with_labels(LabelKind::kNumbers), graphs_with_labels(LabelKind::kClass)}) {
    const test::TempFolder folder;
    TrainOptions options = task_options(data.target);
    options.epochs = 12;
    const TrainReport whole = test::expect_unbroken(folder, data, options, 5);
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
  TrainOptions options = task_options(TaskTarget::kGraph);
  options.epochs = 1;
  EXPECT_THROWS(InvalidArgument, test::fragments("readout", "sum", "edge-class"),
                train(edges, options));
  const TrainedModel of_graphs = train(graphs, options).trained;
  options.readout = ReduceOp::kMean;
  const TrainedModel of_edges = train(edges, options).trained;
  Dataset plain = edges;
  plain.edge_features.reset();
  EXPECT_THROWS(InvalidArgument, test::fragments("1 features of edges", "have 0"),
                of_edges.logits(plain));
  EXPECT_THROWS(InvalidArgument, test::fragments("graph-class", "edge-class"),
                of_graphs.logits(edges));
  remove_labels(plain);
  EXPECT_THROWS(InvalidArgument, "set of graphs", of_graphs.logits(plain));
}

}  // namespace
}  // namespace mezzo
