#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace mezzo::cli {

/// The words after the command's name.
using Arguments = std::vector<std::string>;

/// One command.
struct Command {
  std::string_view name;
  std::string_view description;
  int (*run)(
      const Arguments& arguments);  ///< returns the exit code; throws errors that run() reports
};

int train_command(const Arguments& arguments);
int tune_command(const Arguments& arguments);
int launch_command(const Arguments& arguments);
int evaluate_command(const Arguments& arguments);
int predict_command(const Arguments& arguments);
int compare_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int data_command(const Arguments& arguments);

/// Runs the command that `arguments` begin with, or handles --help and (unless `version` is empty)
/// --version. name: the words before on the command line.
int dispatch(const std::string& name, const std::string& description,
             const std::function<std::string()>& version, const std::vector<Command>& commands,
             const Arguments& arguments);

}  // namespace mezzo::cli
