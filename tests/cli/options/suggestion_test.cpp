#include "mezzo/cli/options/suggestion.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace mezzo::cli {
namespace {

const std::vector<std::string> kOptions = {"--dataset", "--hidden", "--lr", "--epochs",
                                           "--batch-size"};

TEST(Suggestion, is_the_nearest_word_within_two_edits) {
  EXPECT_EQ(suggestion("--datset", kOptions), "--dataset");
  EXPECT_EQ(suggestion("--hiden", kOptions), "--hidden");
  EXPECT_EQ(suggestion("-epoch", kOptions), "--epochs");
  EXPECT_EQ(suggestion("--batch_size", kOptions), "--batch-size");
  EXPECT_EQ(suggestion("trian", {"tune", "train"}), "train");
  EXPECT_EQ(suggestion("--dtst", kOptions), "") << "three edits";
  EXPECT_EQ(suggestion("--x", kOptions), "") << "every word of two letters is near";
  EXPECT_EQ(suggestion("", kOptions), "");
  EXPECT_EQ(suggestion("--", kOptions), "");
}

TEST(Suggestion, knows_other_usual_names_of_options_that_there_are) {
  EXPECT_EQ(suggestion("--learning-rate", kOptions), "--lr");
  EXPECT_EQ(suggestion("learning_rate", {"lr"}), "lr");
  EXPECT_EQ(suggestion("--learning-rate", {"--dataset"}), "");
  EXPECT_EQ(did_you_mean("--learning-rate", kOptions), " (did you mean --lr?)");
  EXPECT_EQ(did_you_mean("--frob", kOptions), "");
}

}  // namespace
}  // namespace mezzo::cli
