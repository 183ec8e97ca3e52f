#include "mezzo/core/type_list.h"

#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mezzo/core/dtype.h"
#include "mezzo/core/parse.h"
#include "mezzo/kernels/binary_op.h"
#include "mezzo/kernels/reduce_op.h"

namespace mezzo {
namespace {

using mezzo::detail::for_each;
using mezzo::detail::names;
using mezzo::detail::visit;

enum class Fruit { kApple, kPear, kPlum };
struct Apple {
  static constexpr Fruit kind = Fruit::kApple;
  static constexpr std::string_view name = "apple";
};
struct Pear {
  static constexpr Fruit kind = Fruit::kPear;
  static constexpr std::string_view name = "pear";
  static constexpr std::string_view long_name = "pyrus";
};
using Fruits = TypeList<Apple, Pear>;

TEST(TypeList, visit_calls_the_member_of_the_kind_once) {
  std::vector<std::string> visited;
  EXPECT_TRUE(visit(Fruits{}, Fruit::kPear, [&]<class T>() { visited.emplace_back(T::name); }));
  EXPECT_EQ(visited, std::vector<std::string>{"pear"});
}

TEST(TypeList, visit_of_a_kind_that_is_not_listed_is_false_and_calls_nothing) {
  int calls = 0;
  EXPECT_FALSE(visit(Fruits{}, Fruit::kPlum, [&]<class T>() { ++calls; }));
  EXPECT_EQ(calls, 0);
}

TEST(TypeList, for_each_goes_through_the_members_in_order) {
  std::string visited;
  for_each(Fruits{}, [&]<class T>() { visited += T::name; });
  EXPECT_EQ(visited, "applepear");
}

TEST(TypeList, names_are_separated_by_commas) {
  EXPECT_EQ(names(Fruits{}), "apple, pear");
  EXPECT_EQ(names(TypeList<Apple>{}), "apple");
  EXPECT_EQ(names(TypeList<>{}), "");
}

TEST(TypeList, name_of_is_empty_for_a_kind_that_is_not_listed) {
  EXPECT_EQ(name_of(Fruits{}, Fruit::kApple), "apple");
  EXPECT_EQ(name_of(Fruits{}, Fruit::kPlum), "");
}

TEST(TypeList, parse_finds_the_kind_of_a_name) {
  for (const char* text : {"pear", "Pear", "PEAR", "Pyrus"}) {
    EXPECT_EQ(parse(Fruits{}, "fruit", text), Fruit::kPear) << text;
  }
}

TEST(TypeList, parse_of_an_unknown_name_names_it_and_every_choice) {
  for (const char* text : {"plum", "", "pea", "pear "}) {
    try {
      parse(Fruits{}, "fruit", text);
      ADD_FAILURE() << "'" << text << "' was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.what(), "fruit: '" + std::string(text) + "' is not one of apple, pear");
    }
  }
}

TEST(TypeList, parse_variable_takes_no_text_for_none_and_names_the_variable) {
  constexpr const char* kName = "MEZZO_TEST_FRUIT";
  unsetenv(kName);
  EXPECT_EQ(parse_variable(Fruits{}, kName), std::nullopt);
  setenv(kName, "", /*overwrite=*/1);
  EXPECT_EQ(parse_variable(Fruits{}, kName), std::nullopt);
  setenv(kName, "pear", /*overwrite=*/1);
  EXPECT_EQ(parse_variable(Fruits{}, kName), Fruit::kPear);
  setenv(kName, "plum", /*overwrite=*/1);
  try {
    parse_variable(Fruits{}, kName);
    ADD_FAILURE() << "'plum' was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "MEZZO_TEST_FRUIT: 'plum' is not one of apple, pear");
  }
  unsetenv(kName);
}

TEST(TypeList, size_counts_the_members) {
  static_assert(TypeList<>::size == 0);
  static_assert(Fruits::size == 2);
  EXPECT_EQ(DTypes::size, 4U);
}

/// Names and kinds of a list are distinct, and parse() inverts name_of().
template <class List>
void expect_a_sound_axis(List list) {
  std::set<std::string> names_of_list;
  for_each(list, [&]<class T>() {
    EXPECT_TRUE(names_of_list.insert(std::string(T::name)).second) << T::name << " is listed twice";
    EXPECT_EQ(parse(list, "axis", T::name), T::kind) << T::name;
    EXPECT_EQ(name_of(list, T::kind), T::name);
  });
  EXPECT_EQ(names_of_list.size(), List::size);
}

TEST(TypeList, every_axis_of_the_library_has_distinct_names_and_kinds) {
  expect_a_sound_axis(DTypes{});
  expect_a_sound_axis(BinaryOps{});
  expect_a_sound_axis(ReduceOps{});
  expect_a_sound_axis(Targets{});
}

}  // namespace
}  // namespace mezzo
