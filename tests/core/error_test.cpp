#include "mezzo/core/error.h"

#include <string>
#include <type_traits>

#include <gtest/gtest.h>

namespace mezzo {
namespace {

TEST(Error, a_check_that_holds_does_nothing) {
  EXPECT_NO_THROW(MEZZO_CHECK(1 + 1 == 2, "never"));
}

TEST(Error, a_check_that_fails_throws_its_formatted_message) {
  try {
    MEZZO_CHECK(1 + 1 == 3, "op: expected {} [{}, {}], got {}", "x", 4, 3, 5);
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "op: expected x [4, 3], got 5");
  }
}

TEST(Error, the_message_is_not_built_while_the_check_holds) {
  int calls = 0;
  const auto text = [&] {
    ++calls;
    return std::string("never");
  };
  MEZZO_CHECK(true, "{}", text());
  EXPECT_EQ(calls, 0);
}

TEST(Error, the_condition_is_evaluated_once) {
  int evaluated = 0;
  MEZZO_CHECK(++evaluated > 0, "never");
  EXPECT_EQ(evaluated, 1);
}

TEST(Error, a_check_is_one_statement) {
  bool in_else = false;
  if (false)
    MEZZO_CHECK(false, "never");
  else
    in_else = true;
  EXPECT_TRUE(in_else);
}

template <class Kind>
class ErrorKind : public testing::Test {};
using Kinds = testing::Types<InvalidArgument, IoError, NumericError, LogicError>;
TYPED_TEST_SUITE(ErrorKind, Kinds);

TYPED_TEST(ErrorKind, is_an_error_and_a_runtime_error) {
  static_assert(std::is_base_of_v<Error, TypeParam>);
  EXPECT_THROW(mezzo::detail::raise<TypeParam>("text {}", 1), Error);
  EXPECT_THROW(mezzo::detail::raise<TypeParam>("text {}", 1), std::runtime_error);
}

TYPED_TEST(ErrorKind, keeps_its_kind_and_its_text) {
  try {
    mezzo::detail::raise<TypeParam>("{}: {}", "file", 7);
  } catch (const TypeParam& error) {
    EXPECT_STREQ(error.what(), "file: 7");
  }
}

TEST(Error, the_kinds_are_siblings) {
  static_assert(!std::is_base_of_v<InvalidArgument, IoError>);
  static_assert(!std::is_base_of_v<IoError, NumericError>);
  static_assert(!std::is_base_of_v<InvalidArgument, LogicError>);
  EXPECT_THROW(
      {
        try {
          mezzo::detail::raise<IoError>("disk");
        } catch (const InvalidArgument&) {
          FAIL() << "an input error was caught as an argument error";
        }
      },
      IoError);
}

TEST(Error, a_debug_check_fails_in_debug_builds_only) {
#ifdef NDEBUG
  EXPECT_NO_THROW(MEZZO_DCHECK(false));
#else
  EXPECT_THROW(MEZZO_DCHECK(false), LogicError);
#endif
}

}  // namespace
}  // namespace mezzo
