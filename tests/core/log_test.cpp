#include "mezzo/core/log.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "mezzo/core/error.h"

namespace mezzo {
namespace {

// The variable is read once per process, so each case runs in its own process and returns the
// answer as exit code.
int enabled_with(const char* variable, const char* topic) {
  int answer = -1;
  EXPECT_EXIT(
      {
        if (variable == nullptr) {
          unsetenv("MEZZO_LOG");
        } else {
          setenv("MEZZO_LOG", variable, 1);
        }
        std::exit(log_enabled(topic) ? 10 : 11);
      },
      [&](int status) {
        answer = WEXITSTATUS(status);
        return WIFEXITED(status);
      },
      "");
  return answer;
}

class LogTest : public testing::Test {
 protected:
  void SetUp() override { testing::FLAGS_gtest_death_test_style = "fast"; }
  static constexpr int kYes = 10, kNo = 11;
};

TEST_F(LogTest, is_off_by_default) {
  EXPECT_EQ(enabled_with(nullptr, "dispatch"), kNo);
  EXPECT_EQ(enabled_with("", "dispatch"), kNo);
}

TEST_F(LogTest, topics_or_all_enable_it) {
  for (const char* topics : {"dispatch", "other,dispatch", "all", "libtorch,all"}) {
    EXPECT_EQ(enabled_with(topics, "dispatch"), kYes) << topics;
  }
}

TEST_F(LogTest, the_check_names_a_word_that_is_no_topic) {
  for (const char* good : {"", "all", "dispatch,libtorch"}) {
    setenv("MEZZO_LOG", good, 1);
    EXPECT_NO_THROW(check_log_topics()) << good;
  }
  for (const char* bad : {"dispach", "dispatch,other"}) {
    setenv("MEZZO_LOG", bad, 1);
    EXPECT_THROW(check_log_topics(), InvalidArgument) << bad;
  }
  unsetenv("MEZZO_LOG");
}

TEST_F(LogTest, a_topic_is_matched_whole) {
  EXPECT_EQ(enabled_with("dispatcher", "dispatch"), kNo);
  EXPECT_EQ(enabled_with("dis", "dispatch"), kNo);
}

TEST_F(LogTest, writes_a_line_with_topic_and_text_to_the_standard_error) {
  EXPECT_EXIT(
      {
        setenv("MEZZO_LOG", "dispatch", 1);
        mezzo::detail::log("dispatch", "scalar chosen");
        std::exit(0);
      },
      testing::ExitedWithCode(0), "mezzo dispatch: scalar chosen");
}

TEST_F(LogTest, writes_nothing_for_a_topic_that_is_off) {
  EXPECT_EXIT(
      {
        setenv("MEZZO_LOG", "other", 1);
        mezzo::detail::log("dispatch", "scalar chosen");
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace mezzo
