#pragma once

#include <exception>
#include <string>
#include <vector>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace mezzo::test {

/// Collects libtorch's warnings during its lifetime.
class Warnings : public c10::WarningHandler {
 public:
  Warnings() : guard_(this) {}
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }

  std::vector<std::string> texts;

 private:
  c10::WarningUtils::WarningHandlerGuard guard_;
};

/// Whether `call` throws an `Expected` with `text` in its message.
template <class Expected, class Call>
testing::AssertionResult throws_with(const std::string& text, Call call) {
  try {
    call();
  } catch (const Expected& error) {
    if (std::string(error.what()).find(text) != std::string::npos) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "threw \"" << error.what() << "\" without: " << text;
  } catch (const std::exception& error) {
    return testing::AssertionFailure() << "threw another type of error: " << error.what();
  }
  return testing::AssertionFailure() << "threw nothing; expected: " << text;
}

}  // namespace mezzo::test
