#include "mezzo/core/log.h"

#include <string>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "mezzo/core/environment.h"

namespace mezzo {

bool log_enabled(std::string_view topic) {
  static const std::string enabled = "," + environment_text("MEZZO_LOG") + ",";
  return enabled == ",all," || enabled.find("," + std::string(topic) + ",") != std::string::npos;
}

void log(std::string_view topic, std::string_view text) {
  if (!log_enabled(topic)) return;
  static const auto logger = [] {
    auto made = spdlog::stderr_logger_mt("mezzo");
    made->set_pattern("mezzo %v");
    return made;
  }();
  logger->info("{}: {}", topic, text);
}

}  // namespace mezzo
