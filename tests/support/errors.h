#pragma once

#include <exception>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "mezzo/core/error.h"

/// Checks that calls throw, and what.
namespace mezzo::test {

inline std::vector<std::string> fragments(std::vector<std::string> parts) {
  return parts;
}
template <class... Parts>
std::vector<std::string> fragments(const Parts&... parts) {
  return {std::string(parts)...};
}

/// Whether `text` contains all of `parts`.
inline testing::AssertionResult mentions(const std::string& text,
                                         const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (text.find(part) != std::string::npos) continue;
    return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
  }
  return testing::AssertionSuccess();
}
template <class... Parts>
testing::AssertionResult mentions(const std::string& text, const Parts&... parts) {
  return mentions(text, fragments(parts...));
}

/// Whether `run` throws a `Kind` with all of `parts` in its text.
template <class Kind, class Run>
testing::AssertionResult throws(Run&& run, const std::vector<std::string>& parts) {
  try {
    run();
  } catch (const Kind& error) {
    return mentions(error.what(), parts);
  } catch (const std::exception& error) {
    return testing::AssertionFailure() << "another kind of error: " << error.what();
  }
  return testing::AssertionFailure() << "no error";
}

/// The text of the error of kind `Kind` that `run` throws, without spaces, because shapes print
/// differently. Fails if it throws another kind, or nothing.
template <class Kind = InvalidArgument, class Run>
std::string error_of(Run run) {
  try {
    run();
  } catch (const std::exception& error) {
    std::string text = error.what();
    EXPECT_NE(dynamic_cast<const Kind*>(&error), nullptr) << "another kind of error: " << text;
    std::erase(text, ' ');
    return text;
  }
  ADD_FAILURE() << "no error";
  return {};
}

/// Expects that the statement throws a `Kind` with `part` in its text: a string, or several as
/// fragments("a", "b").
#define EXPECT_THROWS(Kind, part, ...) \
  EXPECT_TRUE(::mezzo::test::throws<Kind>([&] { __VA_ARGS__; }, ::mezzo::test::fragments(part)))

/// The same for InvalidArgument, without the spaces of its text.
#define EXPECT_ERROR(part, ...) \
  EXPECT_TRUE(::mezzo::test::mentions(::mezzo::test::error_of([&] { __VA_ARGS__; }), part))

}  // namespace mezzo::test
