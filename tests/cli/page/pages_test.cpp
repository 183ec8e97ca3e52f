#include "mezzo/cli/page/pages.h"

#include <cmath>

#include <fmt/format.h>

#include "cli/command.h"

namespace mezzo {
namespace {

using cli::page::Confusion;
using test::contains;
using test::Words;

/// The page, which has to be well-formed and to need no other file.
std::string checked_page(const std::string& path) {
  const std::string check =
      "import sys, xml.etree.ElementTree as xml\n"
      "page = xml.parse(sys.argv[1]).getroot()\n"
      "assert page.find('body/main/h1').text\n"
      "for one in page.iter():\n"
      "    assert one.tag not in ('script', 'link', 'img', 'iframe'), one.tag\n"
      "    assert not {'href', 'src', 'onload'} & set(one.keys()), one.keys()\n";
  const std::string line = "python3 -c " + test::quoted(check) + " " + test::quoted(path);
  EXPECT_EQ(std::system(line.c_str()), 0) << path;
  const std::string page = test::read_text(path);
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_FALSE(contains(page, "http"));
  EXPECT_FALSE(contains(page, "url("));
  EXPECT_LT(page.size(), 300000);
  return page;
}

/// Runs the command with --report.
std::string page_of(const test::TempFolder& folder, const Words& words, int code = 0) {
  const std::string path = folder.path("run.html");
  test::run_to(code, folder, test::with(words, {"--report", path}));
  return checked_page(path);
}

void expect_titles(const std::string& page, const Words& titles) {
  for (const std::string& title : titles) EXPECT_TRUE(contains(page, "<h3>" + title + "</h3>"));
}

TEST(Pages, train_has_curves_and_the_numbers_of_the_report) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), json = folder.path("run.json");
  const std::string page = page_of(folder, {"train", "--dataset", rings, "--epochs", "7",
                                            "--precision", "fp16", "--json", json});
  expect_titles(page, {"Training loss", "Scores", "Epoch times", "Loss scale", "Confusion matrix"});
  const nlohmann::json report = test::read_json(json);
  EXPECT_TRUE(contains(page, fmt::format("{:.4f}", report["test"]["accuracy"].get<double>())));
  EXPECT_TRUE(contains(page, fmt::format("{:.4f}", report["train_loss"].get<double>())));
  EXPECT_TRUE(contains(page, "gcn on rings in fp16"));
}

TEST(Pages, several_runs_one_epoch_and_a_resumed_run) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), checkpoint = folder.path("c.pt");
  const Words train = {"train", "--dataset", rings, "--epochs"};
  const std::string runs = page_of(folder, test::with(train, {"2", "--runs", "8"}));
  EXPECT_TRUE(contains(runs, "The first 6 of 8 runs."));
  EXPECT_TRUE(contains(runs, "nodes of 8 runs"));
  page_of(folder, test::with(train, {"1", "--checkpoint", checkpoint}));
  const std::string resumed = page_of(folder, {"train", "--resume", checkpoint, "--epochs", "3"});
  EXPECT_TRUE(contains(resumed, ">3</text>"));  // all epochs, also those before
}

TEST(Pages, compare_doctor_and_tune) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  const Words data = {"--dataset", rings};
  const std::string compare =
      page_of(folder, test::with({"compare", "--epochs", "3", "--models", "gcn,sage"}, data));
  expect_titles(compare, {"Epoch times", "Peak memory", "Training loss", "Validation scores"});
  EXPECT_TRUE(contains(compare, ">sage bf16</text>"));
  EXPECT_TRUE(contains(compare, "<th>speed-up</th>"));
  const std::string doctor = page_of(folder, test::with({"doctor", "--steps", "3"}, data));
  expect_titles(doctor, {"Exponents of the gradients", "Training loss", "Peak memory"});
  EXPECT_TRUE(contains(doctor, "float16: 2⁻²⁴ to 2¹⁶"));
  EXPECT_TRUE(contains(doctor, "Recommended: --precision"));
  const std::string tune = page_of(
      folder, test::with({"tune", "--minutes", "0.01", "--output", folder.path("t.toml")}, data));
  expect_titles(tune, {"Trials", "Time", "Scores"});
}

TEST(Pages, names_of_data_sets_and_classes_are_only_text) {
  const test::TempFolder folder;
  std::string nodes = "id,label,split,f0\n", edges = "src,dst\n";
  for (int i = 0; i < 12; ++i) {
    nodes += fmt::format("{},{},{},{}\n", i, i % 2 == 0 ? "<script>alert(1)</script>" : "a&b",
                         i < 4 ? "train" : (i < 8 ? "valid" : "test"), i % 2);
    edges += fmt::format("{},{}\n", i, (i + 2) % 12);
  }
  folder.write("<b>'x'&amp;/nodes.csv", nodes);
  folder.write("<b>'x'&amp;/edges.csv", edges);
  const std::string page =
      page_of(folder, {"train", "--dataset", folder.path("<b>'x'&amp;"), "--epochs", "2"});
  EXPECT_FALSE(contains(page, "<script"));
  EXPECT_FALSE(contains(page, "<b>"));
  EXPECT_TRUE(contains(page, "<title>&lt;script&gt;alert(1)&lt;/script&gt; as a&amp;b: "));
  EXPECT_TRUE(contains(page, "gcn on &lt;b&gt;&#39;x&#39;&amp;amp;"));
}

TEST(Pages, a_path_that_cannot_be_written_is_an_error_before_the_training) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), path = folder.path("no/run.html");
  for (const char* command : {"train", "compare", "doctor", "tune"}) {
    const test::Outcome outcome =
        test::run_to(3, folder, {command, "--dataset", rings, "--report", path});
    EXPECT_EQ(outcome.num_error_lines(), 1) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "--report: the folder"));
  }
  const std::string both = folder.path("both");
  test::run_to(2, folder, {"train", "--dataset", rings, "--report", both, "--json", both});
  test::run_to(2, folder, {"train", "--report", rings + "/labels.npy", "--dataset", rings});
  const Words train = {"train", "--dataset", rings, "--epochs", "1", "--report"};
  for (int i = 0; i < 2; ++i) test::run_to(0, folder, test::with(train, {rings + "/run.html"}));
}

TEST(Pages, runs_without_finite_numbers_are_shown) {
  TrainReport run;
  run.dataset = "d";
  run.model = "gcn";
  run.precision = "fp16";
  run.metric = "accuracy";
  run.losses = {1, std::nan(""), HUGE_VAL};
  run.epoch_ms = {1, 2, 3};
  run.loss_scales = {65536, 32768, 0};
  run.epoch_ms_min = run.epoch_ms_median = std::nan("");
  const std::string page = cli::page::train_page({run}, {}, "the run has diverged");
  EXPECT_TRUE(contains(page, "<p class=\"alert\">the run has diverged</p>"));
  EXPECT_FALSE(contains(page, "\"nan") || contains(page, " inf\""));
  EXPECT_FALSE(contains(cli::page::compare_page("d", {{"gcn", "fp16", {}, "<e>"}}), "<e>"));
  EXPECT_FALSE(cli::page::doctor_page({}).empty());
  EXPECT_FALSE(cli::page::tune_page("d", {}, {}, {}).empty());
}

TEST(Pages, of_many_classes_the_most_frequent_are_shown) {
  Confusion all = {.targets = "test nodes", .classes = {"a", "b", "c", "d"}, .counts = {}};
  all.counts = {{1, 0, 0, 0}, {0, 5, 2, 0}, {0, 1, 0, 1}, {3, 0, 0, 9}};
  const Confusion shown = most_frequent(all, 3);
  EXPECT_EQ(shown.classes, (Words{"b", "d", "other"}));
  EXPECT_EQ(shown.counts,
            (std::vector<std::vector<std::int64_t>>{{5, 0, 2}, {0, 9, 3}, {1, 1, 1}}));
  EXPECT_EQ(most_frequent(all, 4).counts, all.counts);
}

}  // namespace
}  // namespace mezzo
