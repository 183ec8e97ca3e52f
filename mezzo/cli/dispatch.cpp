#include <fmt/ranges.h>

#include "mezzo/cli/commands/commands.h"
#include "mezzo/cli/options/options.h"
#include "mezzo/cli/options/suggestion.h"
#include "mezzo/core/error.h"

namespace mezzo::cli {
namespace {

std::vector<std::string> names_of(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.emplace_back(command.name);
  return names;
}

}  // namespace

int dispatch(const std::string& name, const std::string& description,
             const std::function<std::string()>& version, const std::vector<Command>& commands,
             const Arguments& arguments) {
  if (!arguments.empty()) {
    if (arguments.front() == "help") {
      Arguments words(arguments.begin() + 1, arguments.end());
      words.emplace_back("--help");
      return dispatch(name, description, version, commands, words);
    }
    for (const Command& command : commands) {
      if (command.name == arguments.front()) {
        return command.run({arguments.begin() + 1, arguments.end()});
      }
    }
    MEZZO_CHECK(arguments.front().starts_with('-'),
                "'{}' is not a command of {}{}: expected one of {}", arguments.front(), name,
                did_you_mean(arguments.front(), names_of(commands)),
                fmt::join(names_of(commands), ", "));
  }
  OptionParser app(description, name);
  if (version) app.add_version(version);
  for (const Command& command : commands) app.add_command(command.name, command.description);
  app.set_footer(name + " help <command> shows the options of a command.");
  if (!parse_arguments(app, arguments)) return 0;
  detail::raise<InvalidArgument>("{} expects a command: one of {}", name,
                                 fmt::join(names_of(commands), ", "));
}

}  // namespace mezzo::cli
