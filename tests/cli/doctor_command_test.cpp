#include <algorithm>
#include <sstream>

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

Words words_of(const std::string& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

json candidate(const json& report, const std::string& precision) {
  for (const json& each : report["candidates"]) {
    if (each["precision"] == precision) return each;
  }
  return nullptr;
}

/// write_rings() with features of about 1e5, too large for float16.
std::string write_overflowing_rings(const test::TempFolder& folder) {
  constexpr std::int64_t kNodes = 24, kFeatures = 3;
  std::vector<float> features;
  for (std::int64_t i = 0; i < kNodes * kFeatures; ++i) {
    const auto noise = static_cast<float>(i * 7 % 5) / 8;
    features.push_back(((i / kFeatures % 2 == 0 ? 1.0F : -1.0F) + noise) * 1e5F);
  }
  const std::string path = test::write_rings(folder);
  folder.write("rings/features.npy", test::npy_float32({kNodes, kFeatures}, features));
  return path;
}

/// Expects the same about CUDA in the output, the report and the error of `--device cuda`.
void expect_cuda_line(const test::TempFolder& folder, const std::string& dataset,
                      const std::string& out, const json& cuda) {
  if (cuda["problem"].is_null()) {
    EXPECT_GE(cuda["devices"].get<int>(), 1) << cuda;
    EXPECT_NE(out.find("kernels of " + cuda["library"].get<std::string>() + '\n'),
              std::string::npos)
        << out;
    return;
  }
  const auto problem = cuda["problem"].get<std::string>();
  EXPECT_EQ(cuda["devices"].get<int>(), 0) << cuda;
  EXPECT_NE(out.find("\nCUDA: not usable: " + problem + '\n'), std::string::npos) << out;
  const Outcome refused =
      run_to(2, folder, {"train", "--dataset", dataset, "--device", "cuda", "--epochs", "1"});
  EXPECT_TRUE(test::contains(refused.err, problem));
}

TEST(DoctorCommand, prints_tables_and_writes_the_report) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), path = folder.path("d.json");
  const Outcome outcome = run_to(0, folder,
                                 {"doctor", "--dataset", rings, "--model", "sage", "--steps", "4",
                                  "--lr", "0.05", "--threads", "1", "--json", path});
  EXPECT_TRUE(test::contains(outcome.out, "Recommended: --precision "));
  EXPECT_TRUE(test::contains(outcome.err, "--precision bf16"));
  const json report = read_json(path);
  for (const char* key :
       {"dataset", "model", "device", "cuda", "threads", "seed", "steps", "recommendation",
        "issues", "candidates", "gradients", "runs", "version"}) {
    EXPECT_TRUE(report.contains(key)) << key;
  }
  EXPECT_EQ(report["steps"].get<int>(), 4);
  EXPECT_EQ(report["candidates"].size(), 3U);
  EXPECT_GE(report["runs"].size(), 4U);
  for (const json& run : report["runs"]) EXPECT_EQ(run["losses"].size(), 4U) << run;
  expect_cuda_line(folder, rings, outcome.out, report["cuda"]);
}

TEST(DoctorCommand, a_job_that_diverges_in_float32_gets_no_recommendation_and_exit_code_4) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder), path = folder.path("d.json");
  const Outcome outcome =
      run_to(4, folder,
             {"doctor", "--dataset", rings, "--optimizer", "sgd", "--lr", "1e38", "--json", path});
  EXPECT_TRUE(
      test::contains(outcome.err, "mezzo: doctor: the loss becomes inf or nan in float32 itself"));
  EXPECT_EQ(outcome.out.find("Recommended:"), std::string::npos) << outcome.out;
  EXPECT_TRUE(read_json(path)["recommendation"].is_null());
}

TEST(DoctorCommand, train_takes_its_fix) {
  const test::TempFolder folder;
  const std::string rings = write_overflowing_rings(folder);
  const Words job = {"--recipe", "planetoid", "--dataset",      rings, "--norm",    "layer",
                     "--lr",     "0.05",      "--dropout",      "0.1", "--threads", "1",
                     "--seed",   "3",         "--weight-decay", "0"};
  const json report = test::report_of(folder, test::with({"doctor"}, job));
  ASSERT_FALSE(report["issues"].empty()) << report;
  const json issue = report["issues"][0];
  EXPECT_EQ(issue["kind"].get<std::string>(), "overflow") << issue;
  EXPECT_EQ(issue["place"].get<std::string>(), "layer0") << issue;
  const json float16 = candidate(report, "fp16");
  ASSERT_TRUE(float16["suited"].get<bool>()) << float16;
  EXPECT_NE(float16["options"].get<std::string>().find("--keep-float32 layer0"), std::string::npos);

  const Words train = test::with({"train", "--epochs", "60"}, job);
  EXPECT_EQ(run_mezzo(folder, test::with(train, {"--precision", "fp16"})).code, 4);
  const json fixed =
      test::report_of(folder, test::with(train, words_of(float16["options"].get<std::string>())));
  EXPECT_EQ(fixed["skipped_steps"].get<int>(), 0);
  EXPECT_EQ(fixed["train"]["accuracy"].get<double>(), 1);
}

TEST(DoctorCommand, finds_the_scale_for_a_tiny_loss_and_train_takes_it) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  // 12 training nodes: the gradient of a logit is below 2e-7 / 12, which underflows in float16.
  const Words job = {"--recipe", "planetoid", "--dataset",      rings, "--hidden",      "8",
                     "--lr",     "0.05",      "--dropout",      "0",   "--threads",     "1",
                     "--seed",   "3",         "--weight-decay", "0",   "--loss-factor", "2e-7"};
  const json report = test::report_of(folder, test::with({"doctor"}, job));
  const auto underflow =
      std::find_if(report["issues"].begin(), report["issues"].end(),
                   [](const json& issue) { return issue["kind"] == "underflow"; });
  ASSERT_TRUE(underflow != report["issues"].end()) << report;
  EXPECT_NE((*underflow)["options"].get<std::string>().find("--loss-scale none"), std::string::npos)
      << *underflow;
  const json float16 = candidate(report, "fp16");
  ASSERT_TRUE(float16["suited"].get<bool>()) << float16;
  const auto fix = float16["options"].get<std::string>();
  EXPECT_EQ((*underflow)["fix"].get<std::string>(), fix);

  const Words train = test::with({"train", "--epochs", "20"}, job);
  const json fixed = test::report_of(folder, test::with(train, words_of(fix)));
  EXPECT_EQ(fixed["skipped_steps"].get<int>(), 0);
}

TEST(DoctorCommand, wrong_options_are_exit_code_2_and_one_line) {
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);
  struct Case {
    Words words;
    std::string part;
  };
  const std::vector<Case> cases = {
      {{"doctor", "--steps", "0"}, "--steps"},
      {{"doctor", "--steps", "many"}, "--steps"},
      {{"doctor", "--precision", "fp16"}, "--precision"},
      {{"doctor", "--epochs", "3"}, "--epochs"},
      {{"doctor", "--loss-factor", "-1"}, "loss-factor"},
      {{"doctor", "--dataset", rings, "--split-index", "7"}, "split"},
      {{"train", "--dataset", rings, "--precision", "fp32", "--keep-float32", "layer0"},
       "keep-float32"},
  };
  for (const Case& c : cases) {
    const Outcome outcome = run_mezzo(folder, c.words);
    EXPECT_EQ(outcome.code, 2) << c.part << outcome.err;
    EXPECT_EQ(outcome.num_error_lines(), 1) << outcome.err;
    EXPECT_TRUE(test::contains(outcome.err, c.part));
  }
  const Outcome outcome = run_to(2, folder,
                                 {"train", "--dataset", rings, "--recipe", "planetoid",
                                  "--precision", "fp16", "--keep-float32", "layer0,layer9"});
  EXPECT_TRUE(test::contains(outcome.err, "layer0, layer1"));
}

TEST(DoctorCommand, a_checkpoint_keeps_the_parts_in_float32) {
  const test::TempFolder folder;
  const std::string rings = write_overflowing_rings(folder), checkpoint = folder.path("c.pt");
  const json trained = test::report_of(
      folder, {"train", "--dataset", rings, "--recipe", "planetoid", "--norm", "layer",
               "--precision", "fp16", "--loss-scale", "1024", "--keep-float32", "layer0",
               "--epochs", "5", "--checkpoint", checkpoint});
  const json evaluated = test::report_of(folder, {"evaluate", "--checkpoint", checkpoint});
  EXPECT_EQ(evaluated["train"], trained["train"]);
}

}  // namespace
}  // namespace mezzo
