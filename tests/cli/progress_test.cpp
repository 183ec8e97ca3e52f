#include "mezzo/cli/progress.h"

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace mezzo::cli {
namespace {

EpochRecord record(std::int64_t epoch, std::int64_t epochs) {
  EpochRecord record;
  record.epoch = epoch;
  record.epochs = epochs;
  record.loss = 0.5;
  if (epoch == 1) record.scores = Scores{.train = 0.25, .val = 0.5, .test = 0.75};
  return record;
}

std::int64_t count(const std::string& text, char symbol) {
  std::int64_t total = 0;
  for (const char c : text) total += c == symbol ? 1 : 0;
  return total;
}

TEST(Progress, lines_come_at_about_every_tenth) {
  std::ostringstream out;
  Progress progress(out, Progress::Style::kLines, "gcn");
  for (std::int64_t epoch = 1; epoch <= 200; ++epoch) progress.show(record(epoch, 200));
  EXPECT_EQ(count(out.str(), '\n'), 11) << out.str();
  EXPECT_EQ(count(out.str(), '\r'), 0);
  EXPECT_EQ(out.str().rfind("gcn  epoch 1/200  loss 0.5000  train 0.2500  val 0.5000", 0), 0U)
      << out.str();
  EXPECT_NE(out.str().find("epoch 200/200"), std::string::npos) << out.str();
}

TEST(Progress, a_line_repeats_no_old_scores_and_shows_the_time_left) {
  std::ostringstream out;
  Progress progress(out, Progress::Style::kLines, "");
  EpochRecord first = record(1, 3);
  first.epoch_ms = 50000;
  progress.show(first);
  progress.show(record(2, 3));
  progress.show(record(3, 3));
  const std::string text = out.str();
  EXPECT_NE(text.find("test 0.7500  0.02 epochs/s  2 min left\n"), std::string::npos) << text;
  EXPECT_NE(text.find("2/3  loss 0.5000  train -  val -  test -  0.04 epochs/s  25 s left\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("3/3  loss 0.5000  train -  val -  test -  0.06 epochs/s\n"),
            std::string::npos)
      << text;
}

TEST(Progress, the_rate_includes_a_first_epoch_that_began_before) {
  std::ostringstream out;
  Progress progress(out, Progress::Style::kLines, "");
  EpochRecord first = record(1, 1);
  first.epoch_ms = 100000;
  progress.show(first);
  EXPECT_NE(out.str().find("  0.01 epochs/s"), std::string::npos) << out.str();
}

TEST(Progress, the_bar_is_one_line_that_ends_once) {
  std::ostringstream out;
  {
    Progress progress(out, Progress::Style::kBar, "");
    for (std::int64_t epoch = 1; epoch <= 50; ++epoch) progress.show(record(epoch, 50));
    EXPECT_EQ(count(out.str(), '\n'), 0);
    progress.finish();
  }
  EXPECT_EQ(count(out.str(), '\n'), 1);
  EXPECT_NE(out.str().find("#]  50/50  "), std::string::npos) << out.str();
}

TEST(Progress, a_row_is_written_at_most_ten_times_a_second_and_ends_with_the_latest) {
  std::ostringstream out;
  StatusRow row(out);
  row.show("first");
  for (int i = 0; i < 1000; ++i) row.show("later");
  EXPECT_EQ(out.str(), "\rfirst\x1b[K");
  row.show("last");
  row.finish();
  row.finish();
  EXPECT_EQ(out.str(), "\rfirst\x1b[K\rlast\x1b[K\n");
  row.show("other");
  row.clear();
  EXPECT_TRUE(out.str().ends_with("\n\rother\x1b[K\r\x1b[K")) << out.str();
}

TEST(Progress, the_bar_fits_into_a_row_of_the_terminal) {
  std::ostringstream out;
  Progress progress(out, Progress::Style::kBar, std::string(2 * terminal_columns(), 'x'));
  progress.show(record(1, 2));
  EXPECT_EQ(out.str(), "\r" + std::string(terminal_columns() - 1, 'x') + "\x1b[K");
}

TEST(Progress, the_bar_takes_the_columns_that_the_text_leaves) {
  const std::string text = "123/200  loss 0.1234  train 0.8000  val 0.8000  test 0.8000  12 s left";
  EXPECT_EQ(bar_row("", 1, 2, {text}, 200), "[############............]  " + text);
  const std::string row = bar_row("", 1, 2, {text}, 100);
  EXPECT_EQ(row, "[############............]  " + text);
  EXPECT_LT(row.size(), 100U);
  EXPECT_EQ(bar_row("gcn bf16  ", 1, 2, {text}, 95).size(), 94U);
  EXPECT_EQ(bar_row("", 1, 2, {text}, text.size() + 8), text);
  EXPECT_EQ(bar_row("", 1, 2, {text}, 20), text.substr(0, 19));
}

TEST(Progress, the_bar_takes_the_first_text_that_fits) {
  EXPECT_EQ(bar_row("gcn  ", 1, 2, {"12345678", "1234", "12"}, 14), "gcn  12345678");
  EXPECT_EQ(bar_row("gcn  ", 1, 2, {"12345678", "1234", "12"}, 13), "gcn  1234");
  EXPECT_EQ(bar_row("gcn  ", 1, 2, {"12345678", "1234", "12"}, 7), "gcn  1");
}

TEST(Progress, a_row_of_40_columns_keeps_the_rate_and_the_time_left) {
  ::setenv("COLUMNS", "40", 1);
  std::ostringstream out;
  Progress progress(out, Progress::Style::kBar, "");
  EpochRecord first = record(1, 200);
  first.epoch_ms = 100000;
  progress.show(first);
  const bool is_narrow = terminal_columns() == 40;  // else a terminal with a size of its own
  ::unsetenv("COLUMNS");
  if (is_narrow) {
    EXPECT_EQ(out.str(), "\r1/200  0.01/s  loss 0.5000  6 h left\x1b[K");
  }
}

TEST(Progress, mini_batches_show_batches_of_an_epoch) {
  std::ostringstream out;
  Progress progress(out, Progress::Style::kBar, "");
  progress.show(BatchRecord{.epoch = 2, .epochs = 4, .batch = 3, .batches = 6, .loss = 0.5});
  progress.show(record(2, 4));
  progress.finish();
  EXPECT_NE(out.str().find("epoch 2/4  batch 3/6  "), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("#]  epoch 2/4  batch 6/6  "), std::string::npos) << out.str();
}

TEST(Progress, rates_are_a_few_characters) {
  EXPECT_EQ(short_number(0.0214), "0.021");
  EXPECT_EQ(short_number(3.14159), "3.1");
  EXPECT_EQ(short_number(512.4), "512");
  EXPECT_EQ(short_number(48123), "48k");
  EXPECT_EQ(short_number(1520000), "1.5M");
}

TEST(Progress, a_row_is_cut_between_characters_and_keeps_its_last_column_free) {
  EXPECT_EQ(fit_row("abc", 4), "abc");
  EXPECT_EQ(fit_row("abcd", 4), "abc");
  EXPECT_EQ(fit_row("a\xc3\xa9\xe2\x82\xac", 4), "a\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(fit_row("a\xc3\xa9\xe2\x82\xac", 3), "a\xc3\xa9");
  EXPECT_EQ(fit_row("a\xc3\xa9\xe2\x82\xac", 2), "a");
  EXPECT_EQ(fit_row("", 80), "");
}

TEST(Progress, nothing_shown_leaves_nothing) {
  std::ostringstream out;
  { const Progress progress(out, Progress::Style::kBar, "x"); }
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace mezzo::cli
