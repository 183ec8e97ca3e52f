
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "support/npy_writer.h"

namespace mezzo {
namespace {

using nlohmann::json;
using test::Outcome;
using test::read_json;
using test::run_mezzo;
using test::run_to;
using test::Words;

constexpr std::int64_t kListNodes = 24;

/// A GraphSAINT folder of two rings, 0 and 1. A node has the classes `ring == 0`, `ring == 1` and
/// `ring == 0` once more; its path.
std::string write_lists(const test::TempFolder& folder) {
  std::vector<std::int32_t> starts = {0}, neighbors;
  std::vector<float> features;
  json classes = json::object(), roles;
  for (std::int64_t i = 0; i < kListNodes; ++i) {
    for (const std::int64_t step : {std::int64_t{2}, kListNodes - 2}) {
      neighbors.push_back(static_cast<std::int32_t>((i + step) % kListNodes));
    }
    starts.push_back(static_cast<std::int32_t>(neighbors.size()));
    const int ring = static_cast<int>(i % 2);
    for (std::int64_t f = 0; f < 3; ++f) {
      features.push_back((ring == 0 ? 1.0F : -1.0F) + static_cast<float>((i * 7 + f * 3) % 5) / 8);
    }
    classes[std::to_string(i)] = {1 - ring, ring, 1 - ring};
    const std::int64_t part = i / 2 % 4;
    roles[part < 2 ? "tr" : part == 2 ? "va" : "te"].push_back(i);
  }
  const auto edges = static_cast<std::int64_t>(neighbors.size());
  folder.write(
      "lists/adj_full.npz",
      test::npz_bytes({{"data", test::npy_bool({edges}, std::string(neighbors.size(), '1'))},
                       {"format", test::npy("|S3", {}, "csr")},
                       {"indices", test::npy_int32({edges}, neighbors)},
                       {"indptr", test::npy_int32({kListNodes + 1}, starts)},
                       {"shape", test::npy_int64({2}, {kListNodes, kListNodes})}}));
  folder.write("lists/feats.npy", test::npy_float32({kListNodes, 3}, features));
  folder.write("lists/class_map.json", classes.dump());
  folder.write("lists/role.json", roles.dump());
  return folder.path("lists");
}

TEST(MultiLabelCommands, graphsaint_lists_are_converted_trained_on_evaluated_and_predicted) {
  const test::TempFolder folder;
  const std::string lists = write_lists(folder), out = folder.path("out");
  run_to(0, folder, {"data", "convert", "--dataset", lists, "--output", out});
  const json manifest = read_json(out + "/mezzo.json");
  EXPECT_EQ(manifest["metric"].get<std::string>(), "micro_f1");
  EXPECT_EQ(manifest["arrays"]["labels"]["dtype"].get<std::string>(), "uint8");

  const std::string checkpoint = folder.path("c.pt"), trained = folder.path("t.json"),
                    evaluated = folder.path("e.json");
  for (const Words& batches : {Words{}, Words{"--batch-size", "5", "--fanout", "2,2"}}) {
    const Words train = {"train",    "--dataset", out,         "--epochs", "2",
                         "--lr",     "0.05",      "--threads", "1",        "--checkpoint",
                         checkpoint, "--json",    trained};
    const Outcome outcome = run_to(0, folder, test::with(train, batches));
    EXPECT_TRUE(test::contains(outcome.out, "micro_f1"));
    const json report = read_json(trained);
    EXPECT_GT(report["train_loss"].get<double>(), 0);
    EXPECT_EQ(report["steps"].get<int>(), batches.empty() ? 2 : 6);
    const Outcome again =
        run_to(0, folder, {"evaluate", "--checkpoint", checkpoint, "--json", evaluated});
    EXPECT_TRUE(test::contains(again.out, "micro_f1"));
    for (const char* key : {"train", "val", "test"}) {
      EXPECT_EQ(read_json(evaluated)[key], report[key]) << key;
      EXPECT_TRUE(report[key].contains("micro_f1")) << report[key];
    }
  }

  const std::string csv = folder.path("p.csv"), npy = folder.path("p.npy");
  for (const std::string& output : {csv, npy}) {
    const Outcome predicted =
        run_to(0, folder, {"predict", "--checkpoint", checkpoint, "--output", output});
    EXPECT_TRUE(test::contains(predicted.out, "24 predictions"));
  }
  EXPECT_EQ(test::read_text(csv).rfind("node,p0,p1,p2\n0,", 0), 0U) << test::read_text(csv);
  EXPECT_EQ(test::read_text(npy).size(),
            test::npy("|u1", {kListNodes, 3}, std::string(3 * kListNodes, '\0')).size());
}

TEST(MultiLabelCommands, info_counts_the_nodes_of_each_class) {
  const test::TempFolder folder;
  const std::string lists = write_lists(folder);
  json classes = read_json(lists + "/class_map.json");
  classes.erase("23");  // of ring 1, for testing
  folder.write("lists/class_map.json", classes.dump());
  const json info = test::report_of(folder, {"data", "info", "--dataset", lists});
  std::vector<int> nodes;
  for (const json& one : info["classes"]) nodes.push_back(one["nodes"].get<int>());
  EXPECT_EQ(nodes, (std::vector<int>{12, 11, 12}));
  EXPECT_EQ(info["unlabelled_nodes"].get<int>(), 1);
  EXPECT_TRUE(info["homophily"].is_null());
  EXPECT_EQ(info["metric"].get<std::string>(), "micro_f1");
  EXPECT_EQ(info["splits"][0]["test"].get<int>(), 5);
}

TEST(MultiLabelCommands, options_for_one_label_a_node_are_errors) {
  const test::TempFolder folder;
  const std::string lists = write_lists(folder);
  const Outcome outcome = run_mezzo(folder, {"train", "--dataset", lists, "--batch-size", "4",
                                             "--fanout", "2,2", "--balance-classes"});
  EXPECT_NE(outcome.code, 0);
  EXPECT_TRUE(test::contains(outcome.err,
                             "balance-classes: expected one class a node, the task of lists is"));
}

}  // namespace
}  // namespace mezzo
