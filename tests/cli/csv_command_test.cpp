
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace mezzo {
namespace {

using test::Words;

/// Writes a CSV folder with words as ids and classes and with columns of other names: two rings.
std::string write_csv_rings(const test::TempFolder& folder) {
  constexpr int kNodes = 24;
  std::string edges = "from;to;when\n", nodes = "venue;name;split;f0;f1\n";
  for (int i = 0; i < kNodes; ++i) {
    const int next = (i + 2) % kNodes;
    edges += fmt::format("n{0};n{1};1\nn{1};n{0};2\n", i, next);
    nodes += fmt::format("{};n{};{};{};{}\n", i % 2 == 0 ? "ICML" : "KDD", i,
                         i < 12 ? "train" : (i < 18 ? "valid" : "test"), i % 2,
                         (1 - i % 2) * (1 + i % 3));
  }
  folder.write("rings/edges.csv", edges);
  folder.write("rings/nodes.csv", nodes);
  return folder.path("rings");
}

const Words kColumns = {"--id", "name", "--label", "venue", "--src", "from", "--dst", "to"};

TEST(CsvCommand, columns_have_names_in_every_command_that_reads_data) {
  const test::TempFolder folder;
  const std::string rings = write_csv_rings(folder), checkpoint = folder.path("c.pt");
  const auto run = [&](const Words& words) {
    const test::Outcome outcome =
        run_mezzo(folder, test::with(words, test::with({"--dataset", rings}, kColumns)));
    EXPECT_EQ(outcome.code, 0) << words[0] << ": " << outcome.err;
    return outcome;
  };
  const test::Outcome info = run({"data", "info"});
  EXPECT_TRUE(test::contains(info.out, "ICML"));
  EXPECT_TRUE(test::contains(info.out, "KDD"));
  run({"data", "convert", "--output", folder.path("mapped")});
  run({"data", "partition", "-k", "2", "--output", folder.path("parts")});
  run({"train", "--epochs", "30", "--checkpoint", checkpoint});
  run({"compare", "--epochs", "2"});
  run({"evaluate", "--checkpoint", checkpoint});
  const std::string csv = folder.path("p.csv");
  run({"predict", "--checkpoint", checkpoint, "--output", csv});
  EXPECT_TRUE(test::contains(test::read_text(csv), "node,class,probability,name\n0,0,"));
  EXPECT_TRUE(test::contains(test::read_text(csv), ",ICML\n"));
}

TEST(CsvCommand, edge_weights_are_shown_converted_and_trained_with) {
  const test::TempFolder folder;
  const Words weights = {"--weight", "when"}, columns = test::with(kColumns, weights);
  const std::string rings = write_csv_rings(folder), mapped = folder.path("mapped");
  const auto run = [&](const std::string& dataset, const Words& words, const Words& more) {
    return run_mezzo(folder, test::with(words, test::with({"--dataset", dataset}, more)));
  };
  const Words info = {"data", "info"}, train = {"train", "--epochs", "5"};
  EXPECT_TRUE(test::contains(run(rings, info, columns).out, "min 1, mean 1.5, max 2"));
  EXPECT_FALSE(test::contains(run(rings, info, kColumns).out, "mean 1.5, max 2"));
  ASSERT_EQ(run(rings, {"data", "convert", "--output", mapped}, columns).code, 0);
  EXPECT_TRUE(test::contains(run(mapped, info, {}).out, "min 1, mean 1.5, max 2"));
  for (const char* model : {"gcn", "sage"}) {
    EXPECT_EQ(run(rings, train, test::with(columns, {"--model", model})).code, 0);
    EXPECT_EQ(run(mapped, train, {"--model", model, "--batch-size", "8", "--fanout", "2,2"}).code,
              0);
  }
  const test::Outcome gat = run(rings, train, test::with(columns, {"--model", "gat"}));
  EXPECT_EQ(gat.code, 2) << gat.err;
  EXPECT_TRUE(test::contains(gat.err, "has edge weights"));
  EXPECT_TRUE(test::contains(gat.err, "leave out --weight"));
  const Words cut = {"data", "partition", "-k", "2", "--output", folder.path("parts")};
  EXPECT_EQ(run(rings, cut, columns).code, 2);
}

TEST(CsvCommand, a_checkpoint_keeps_the_columns) {
  const test::TempFolder folder;
  const Words columns = test::with(kColumns, {"--weight", "when"});
  const std::string rings = write_csv_rings(folder), checkpoint = folder.path("c.pt"),
                    mapped = folder.path("mapped"), unweighted = folder.path("unweighted");
  const Words train = {"train", "--dataset", rings, "--epochs", "5", "--checkpoint", checkpoint};
  const nlohmann::json report = report_of(folder, test::with(train, columns));
  const nlohmann::json scores = report_of(folder, {"evaluate", "--checkpoint", checkpoint});
  for (const char* nodes : {"train", "val", "test"}) {
    EXPECT_EQ(scores.at(nodes), report.at(nodes)) << nodes;
  }

  const auto predictions = [&](const Words& more) {
    const std::string csv = folder.path("p.csv");
    const Words predict = {"predict", "--checkpoint", checkpoint, "--output", csv};
    run_to(0, folder, test::with(predict, more));
    return test::read_text(csv);
  };
  const Words convert = {"data", "convert", "--dataset", rings, "--output"};
  run_to(0, folder, test::with(convert, test::with({mapped}, columns)));
  run_to(0, folder, test::with(convert, test::with({unweighted}, kColumns)));
  const std::string own = predictions({});
  EXPECT_EQ(own, predictions(columns));
  EXPECT_EQ(own, predictions({"--dataset", rings}));
  EXPECT_NE(own, predictions({"--dataset", unweighted}));
  const Words wrong = {"evaluate", "--checkpoint", checkpoint, "--weight", "where"};
  EXPECT_TRUE(test::contains(run_to(3, folder, wrong).err, "there is no column 'where'"));

  const Words resume = {"train", "--resume", checkpoint, "--epochs", "6"};
  run_to(0, folder, resume);
  run_to(0, folder, test::with(resume, {"--dataset", mapped}));
  const Outcome other = run_to(2, folder, test::with(resume, {"--dataset", unweighted}));
  EXPECT_TRUE(test::contains(other.err, "data edge-weights"));
}

TEST(CsvCommand, errors_show_the_header_and_the_options) {
  const test::TempFolder folder;
  const Outcome outcome = run_to(3, folder, {"data", "info", "--dataset", write_csv_rings(folder)});
  EXPECT_TRUE(test::contains(outcome.err, "--id and --label"));
  EXPECT_TRUE(test::contains(outcome.err, "'venue,name,split,f0,f1'"));
  const std::string list = folder.write("list.txt", "1 2\n");
  const Outcome other = run_to(2, folder, {"data", "info", "--dataset", list, "--src", "a"});
  EXPECT_TRUE(test::contains(other.err, "CSV folder"));
}

}  // namespace
}  // namespace mezzo
