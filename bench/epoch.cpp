// Training steps of two-layer models by stage, in every precision: on a dataset, or on an R-MAT
// graph with 602 random features and 41 classes.
#include "bench/cases/epoch.h"

#include <ATen/ATen.h>
#include <CLI/App.hpp>

#include "mezzo/core/error.h"
#include "mezzo/data/dataset.h"

#include "bench/harness/program.h"

namespace {

using namespace mezzo::bench;

std::string dataset_name;
bool dense = false;

void add_options(CLI::App& app) {
  app.add_option("--dataset", dataset_name, "A data set instead of the R-MAT graph");
  app.add_flag("--dense", dense, "Make sparse features dense");
}

mezzo::Dataset make_dataset(const Bench& bench) {
  constexpr std::int64_t kFeatures = 602, kClasses = 41;
  if (dataset_name.empty()) {
    return random_dataset(static_cast<int>(bench.scale), bench.edges, kFeatures, kClasses);
  }
  mezzo::Dataset dataset = mezzo::load_dataset(dataset_name);
  if (dense && dataset.features.defined()) dataset.features = dataset.features.to_dense();
  return dataset;
}

void run(Bench& bench) {
  MEZZO_CHECK(bench.order.empty(),
              "--reorder: epochs run on the graph in its own order, got '{}'; leave it out",
              bench.order);
  const mezzo::Dataset dataset = make_dataset(bench);
  bench.begin(dataset.name, dataset.num_nodes, dataset.num_edges());
  for (const std::int64_t width : bench.arguments.widths) {
    for (const auto model :
         {mezzo::nn::ModelKind::kGcn, mezzo::nn::ModelKind::kSage, mezzo::nn::ModelKind::kGat}) {
      EpochOptions options{.model = model, .precisions = bench.arguments.precisions};
      options.hidden = width;
      bench.run(training_epoch(dataset, options));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_program({.name = "epoch",
                      .description = "Training epochs of GCN, GraphSAGE and GAT by stage",
                      .widths = {256},
                      .width_help = "Hidden width; of gat, of its 4 heads together",
                      .takes_graph = true,
                      .add_options = add_options,
                      .run = run},
                     argc, argv);
}
