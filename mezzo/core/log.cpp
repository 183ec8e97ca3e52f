#include "mezzo/core/log.h"

#include <sstream>
#include <string>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "mezzo/core/environment.h"
#include "mezzo/core/error.h"

namespace mezzo {

void check_log_topics() {
  std::istringstream words(environment_text("MEZZO_LOG"));
  for (std::string word; std::getline(words, word, ',');) {
    const bool known = word.empty() || word == "all" || word == "dispatch" || word == "libtorch";
    MEZZO_CHECK(known, "MEZZO_LOG: expected all, or dispatch and libtorch with commas, got '{}'",
                word);
  }
}

bool log_enabled(std::string_view topic) {
  static const std::string enabled = "," + environment_text("MEZZO_LOG") + ",";
  return enabled.find(",all,") != std::string::npos ||
         enabled.find("," + std::string(topic) + ",") != std::string::npos;
}

void detail::log(std::string_view topic, std::string_view text) {
  if (!log_enabled(topic)) return;
  static const auto logger = [] {
    auto stderr_logger = spdlog::stderr_logger_mt("mezzo");
    stderr_logger->set_pattern("mezzo %v");
    return stderr_logger;
  }();
  logger->info("{}: {}", topic, text);
}

}  // namespace mezzo
