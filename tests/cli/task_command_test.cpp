// Every command on every task.
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "mezzo/core/task.h"

#include "cli/command.h"
#include "support/npy_writer.h"

namespace mezzo {
namespace {

using nlohmann::json;
using test::report_of;
using test::run_to;
using test::with;
using test::Words;

/// A file of labels of that kind, whose first column is `bits`.
std::string label_file(LabelKind kind, const std::vector<std::int64_t>& bits) {
  const auto count = static_cast<std::int64_t>(bits.size());
  if (kind == LabelKind::kClass) return test::npy_int64({count}, bits);
  std::vector<std::int64_t> entries;
  std::vector<float> numbers;
  for (const std::int64_t bit : bits) {
    entries.insert(entries.end(), {bit, 1 - bit});
    numbers.insert(numbers.end(), {static_cast<float>(bit) * 2.5F, 7});
  }
  return kind == LabelKind::kMultiLabel ? test::npy_int64({count, 2}, entries)
                                        : test::npy_float32({count, 2}, numbers);
}

/// Writes a set of 30 paths of three or four nodes with labels of that kind of nodes (whether they
/// are the first), edges (their directions) and graphs (their lengths), and returns its path.
std::string write_paths(const test::TempFolder& folder, LabelKind kind) {
  constexpr std::int64_t kGraphs = 30;
  const std::string name(name_of(LabelKinds{}, kind));
  std::vector<std::int64_t> src, dst, first_nodes, directions, lengths, offsets = {0};
  std::vector<float> features;
  for (std::int64_t g = 0; g < kGraphs; ++g) {
    const std::int64_t size = 3 + g % 2, first = offsets.back();
    for (std::int64_t i = 0; i < size; ++i) {
      features.insert(features.end(), {static_cast<float>(i), 1});
      first_nodes.push_back(i == 0 ? 1 : 0);
      if (i + 1 == size) continue;
      src.insert(src.end(), {first + i, first + i + 1});
      dst.insert(dst.end(), {first + i + 1, first + i});
      directions.insert(directions.end(), {0, 1});
    }
    lengths.push_back(g % 2);
    offsets.push_back(first + size);
  }
  const auto num_edges = static_cast<std::int64_t>(src.size());
  src.insert(src.end(), dst.begin(), dst.end());
  folder.write(name + "/edge_index.npy", test::npy_int64({2, num_edges}, src));
  folder.write(name + "/features.npy", test::npy_float32({offsets.back(), 2}, features));
  folder.write(name + "/graph_offsets.npy", test::npy_int64({kGraphs + 1}, offsets));
  folder.write(name + "/labels.npy", label_file(kind, first_nodes));
  folder.write(name + "/edge_labels.npy", label_file(kind, directions));
  folder.write(name + "/graph_labels.npy", label_file(kind, lengths));
  return folder.path(name);
}

/// Runs every command on the data with these options of the task and of mini-batches.
void expect_every_command(const std::string& data, const Words& task, const Words& batches = {}) {
  const test::TempFolder folder;
  const std::string checkpoint = folder.path("c.pt"), csv = folder.path("p.csv");
  const Words named = {"--dataset", data, "--threads", "1"};
  const Words options = with(with(with(named, task), batches), {"--model", "gin", "--layers", "2"});
  const Words whole = with(options, {"--hidden", "8"});

  const json trained =
      report_of(folder, with(with({"train"}, whole),
                             {"--precision", "fp16", "--epochs", "3", "--checkpoint", checkpoint}));
  EXPECT_EQ(trained["precision"], "fp16");
  EXPECT_EQ(trained["epochs_run"], 3);
  EXPECT_EQ(trained["error"], nullptr);
  EXPECT_EQ(trained.contains("sampling") && !trained["sampling"].is_null(), !batches.empty());
  // The checkpoint knows the task, and all else but where the data are.
  const json resumed = report_of(
      folder,
      with({"train", "--resume", checkpoint, "--epochs", "4", "--checkpoint", checkpoint}, named));
  EXPECT_EQ(resumed["epochs_run"], 4);
  EXPECT_EQ(resumed["history"]["train_loss"].size(), 4U);
  const json evaluated = report_of(folder, {"evaluate", "--checkpoint", checkpoint});
  EXPECT_EQ(evaluated["test"], resumed["test"]);
  EXPECT_FALSE(evaluated["test"].begin()->is_null());
  run_to(0, folder, {"predict", "--checkpoint", checkpoint, "--output", csv});
  const std::string target = task[1].substr(0, task[1].find('-'));
  EXPECT_TRUE(test::read_text(csv).starts_with(target + ",")) << test::read_text(csv);

  const json compared = report_of(
      folder, with(with({"compare"}, whole), {"--precisions", "fp32,bf16", "--epochs", "2"}));
  EXPECT_EQ(compared["results"].size(), 2U);
  const json diagnosed = report_of(folder, with(with({"doctor"}, whole), {"--steps", "3"}));
  EXPECT_FALSE(diagnosed["runs"].empty());
  run_to(0, folder,
         with(with({"tune"}, options), {"--precision", "bf16", "--minutes", "0.01", "--epochs", "2",
                                        "--output", folder.path("t.toml")}));
}

/// Every kind of labels of that target.
void expect_every_kind(const std::string& target) {
  const test::TempFolder folder;
  detail::for_each(LabelKinds{}, [&]<class Kind>() {
    SCOPED_TRACE(Kind::name);
    expect_every_command(write_paths(folder, Kind::kind),
                         {"--task", target + "-" + std::string(Kind::name)});
  });
}

TEST(TaskCommands, take_labels_of_nodes) {
  expect_every_kind("node");
}

TEST(TaskCommands, take_labels_of_edges) {
  expect_every_kind("edge");
}

TEST(TaskCommands, take_labels_of_graphs) {
  expect_every_kind("graph");
}

TEST(TaskCommands, take_links) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  expect_every_command(rings, {"--task", "link", "--decoder", "mlp"});
  expect_every_command(rings, {"--task", "link", "--metric", "mrr"});
}

TEST(TaskCommands, take_batches_of_each_target) {
  const test::TempFolder folder;
  const std::string paths = write_paths(folder, LabelKind::kClass);
  const Words batches = {"--batch-size", "9", "--workers", "2"};
  const Words with_fanout = with(batches, {"--fanout", "3,3"});
  expect_every_command(paths, {"--task", "edge-class"}, with_fanout);
  expect_every_command(paths, {"--task", "graph-class"}, batches);
  const std::string rings = test::write_rings(folder);
  expect_every_command(rings, {"--task", "link", "--decoder", "distmult", "--metric", "hits@10"},
                       with_fanout);
}

TEST(TaskCommands, labels_of_graphs_have_a_model_of_their_own_unless_it_is_given) {
  const test::TempFolder folder;
  const std::string paths = write_paths(folder, LabelKind::kClass);
  const auto model_of = [&](const std::string& target, const Words& options) {
    const Words words = {"--dataset", paths, "--task", target + "-class", "--epochs", "1"};
    const json trained = report_of(folder, with(with({"train"}, words), options));
    const json compared =
        report_of(folder, with(with({"compare", "--precisions", "fp32"}, words), options));
    EXPECT_EQ(trained["model"], compared["results"][0]["model"]);
    return trained["model"].get<std::string>();
  };
  EXPECT_EQ(model_of("graph", {}), "gin");
  EXPECT_EQ(model_of("graph", {"--model", "sage"}), "sage");
  EXPECT_EQ(model_of("graph", {"--recipe", "planetoid"}), "gcn");
  EXPECT_EQ(model_of("node", {}), "gcn");
}

TEST(TaskCommands, options_that_the_data_contradict_are_the_first_line) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  for (const char* command : {"train", "compare", "doctor", "tune"}) {
    const test::Outcome outcome =
        run_to(2, folder, {command, "--dataset", rings, "--batch-size", "5"});
    EXPECT_EQ(outcome.num_error_lines(), 1) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("mezzo: fanout:")) << outcome.err;
  }
  const test::Outcome outcome =
      run_to(2, folder,
             {"train", "--dataset", write_paths(folder, LabelKind::kClass), "--task", "graph-class",
              "--batch-size", "5", "--fanout", "2,2"});
  EXPECT_TRUE(outcome.err.starts_with("mezzo: fanout:")) << outcome.err;
}

}  // namespace
}  // namespace mezzo
