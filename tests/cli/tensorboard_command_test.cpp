#include <algorithm>

#include "cli/command.h"

namespace mezzo {
namespace {

using test::Outcome;
using test::run_to;
using test::Words;

class TensorboardCommandTest : public testing::Test {
 protected:
  const test::TempFolder folder;
  const std::string rings = test::write_rings(folder);

  Words quick_train(const Words& more) const {
    return test::with(
        {"train", "--dataset", rings, "--epochs", "10", "--lr", "0.05", "--threads", "1"}, more);
  }
};

/// The contents of the event files in `path`, in the order of their names.
std::vector<std::string> event_files(const std::string& path) {
  std::vector<std::string> names, texts;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file()) names.push_back(entry.path().string());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) texts.push_back(test::read_text(name));
  return texts;
}

std::int64_t count_of(const std::string& text, const std::string& part) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST_F(TensorboardCommandTest, has_every_epoch_and_only_the_evaluations_that_were_made) {
  const std::string path = folder.path("runs/one");
  const std::string checkpoint = folder.path("c.pt");
  run_to(0, folder,
         quick_train({"--tensorboard", path, "--eval-every", "5", "--precision", "fp16",
                      "--checkpoint", checkpoint}));
  const std::vector<std::string> files = event_files(path);
  ASSERT_EQ(files.size(), 1U);
  for (const char* tag : {"loss/train", "time/epoch_seconds", "scaler/loss_scale"}) {
    EXPECT_EQ(count_of(files[0], tag), 10) << tag;
  }
  for (const char* tag : {"accuracy/train", "accuracy/val", "accuracy/test"}) {
    EXPECT_EQ(count_of(files[0], tag), 2) << tag;
  }
  // A resumed run has a file of its own, from epoch 11 on.
  run_to(
      0, folder,
      {"train", "--resume", checkpoint, "--epochs", "13", "--tensorboard", path, "--threads", "1"});
  const std::vector<std::string> both = event_files(path);
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(std::min(count_of(both[0], "loss/train"), count_of(both[1], "loss/train")), 3);
  EXPECT_EQ(count_of(both[0] + both[1], std::string("\x10\x0b\x3a\x02\x08\x01")), 1);  // START
}

TEST_F(TensorboardCommandTest, has_mini_batches_and_a_folder_for_each_run) {
  const std::string path = folder.path("runs");
  run_to(0, folder,
         quick_train({"--tensorboard", path, "--runs", "2", "--model", "sage", "--fanout", "2,2",
                      "--batch-size", "4", "--precision", "fp32"}));
  for (const char* name : {"/run_1", "/run_2"}) {
    const std::vector<std::string> files = event_files(path + name);
    ASSERT_EQ(files.size(), 1U);
    EXPECT_EQ(count_of(files[0], "loss/train"), 10);
    EXPECT_EQ(count_of(files[0], "scaler/"), 0);
  }
}

TEST_F(TensorboardCommandTest, a_folder_that_cannot_be_made_is_an_error_before_the_data) {
  const std::string file = folder.write("file", "");
  const Outcome outcome =
      run_to(3, folder, {"train", "--dataset", folder.path("none"), "--tensorboard", file});
  EXPECT_TRUE(test::contains(outcome.err, "mezzo: --tensorboard: " + file + " is no folder"));
  EXPECT_EQ(outcome.num_error_lines(), 1) << outcome.err;
}

}  // namespace
}  // namespace mezzo
