#include "mezzo/cli/commands.h"
#include "mezzo/cli/options.h"
#include "mezzo/core/error.h"

namespace mezzo::cli {
namespace {

std::string names_of(const std::vector<Command>& commands) {
  std::string text;
  for (const Command& command : commands) {
    text += (text.empty() ? "" : ", ") + std::string(command.name);
  }
  return text;
}

}  // namespace

int dispatch(const std::string& name, const std::string& description,
             const std::function<std::string()>& version, const std::vector<Command>& commands,
             const Arguments& arguments) {
  if (!arguments.empty()) {
    for (const Command& command : commands) {
      if (command.name == arguments.front()) {
        return command.run({arguments.begin() + 1, arguments.end()});
      }
    }
    MEZZO_CHECK(arguments.front().starts_with('-'),
                "'{}' is not a command of {}: expected one of {}", arguments.front(), name,
                names_of(commands));
  }
  OptionParser app(description, name);
  if (version) app.add_version(version);
  for (const Command& command : commands) app.add_command(command.name, command.description);
  app.set_footer(name + " <command> --help shows the options of a command.");
  if (!parse_arguments(app, arguments)) return 0;
  detail::raise<InvalidArgument>("{} expects a command: one of {}", name, names_of(commands));
}

}  // namespace mezzo::cli
