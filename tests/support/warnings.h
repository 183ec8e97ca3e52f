#pragma once

#include <string>
#include <vector>

#include <c10/util/Exception.h>

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

}  // namespace mezzo::test
