#include "mezzo/cli/run.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include "mezzo/amp/autocast/autocast.h"
#include "mezzo/cli/commands/commands.h"
#include "mezzo/cli/progress.h"
#include "mezzo/core/error.h"
#include "mezzo/core/log.h"
#include "mezzo/dist/rendezvous/failure.h"
#include "mezzo/predict/mezzo_predictor.h"
#include "mezzo/predict/status.h"
#include "mezzo/runtime/backend_info.h"
#include "mezzo/version.h"

namespace mezzo::cli {
namespace {

constexpr std::string_view kPrefix = "mezzo: ";

/// Prints the first line of the text, without control characters, which a file may have.
void print_line(std::string_view text) {
  std::string line(text.substr(0, text.find('\n')));
  const auto is_control = [](char c) { return (c >= '\0' && c < ' ') || c == '\x7f'; };
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  const std::string whole = fmt::format("{}{}\n", kPrefix, line);
  blank_open_row();
  std::fputs(whole.c_str(), stderr);  // fmt::print throws if the stream is closed
}

/// Prints Mezzo's warnings and logs libtorch's, which are for programmers.
class Warnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    const std::string_view text = warning.msg();
    if (text.starts_with(kPrefix)) {
      print_line(fmt::format("warning: {}", text.substr(kPrefix.size())));
    } else {
      detail::log("libtorch", text);
    }
  }
};

std::string version_text() {
  const int devices = at::hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0;
  return fmt::format("mezzo {}\nlibtorch {}\n{}\nCUDA devices: {}", kVersion, TORCH_VERSION,
                     describe_backends(), devices);
}

/// Opens closed standard streams, so that no file or socket gets their descriptors and receives
/// what is printed. Writing to the replacement fails.
void fill_standard_streams() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) >= 0) continue;  // open() takes the lowest free number
    if (::open("/dev/full", O_RDWR) < 0) ::open("/dev/null", O_RDWR);
  }
}

/// Throws IoError if writing to the standard output failed.
void finish_output() {
  std::cout.flush();
  if (!std::cout || std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw IoError("the standard output: writing failed");
  }
}

/// Advice on how to use less memory; may be empty.
std::string_view memory_advice(const std::vector<std::string>& arguments) {
  const auto has = [&arguments](std::string_view word) {
    return std::find(arguments.begin(), arguments.end(), word) != arguments.end();
  };
  if (has("doctor")) return "; a smaller --hidden needs less";
  if (!has("train") && !has("compare") && !has("tune")) return "";
  if (has("--batch-size")) {
    return "; a smaller --batch-size, --fanout, --inference-batch-size or --hidden needs less";
  }
  return "; --precision bf16, a smaller --hidden, or mini-batches (--batch-size, --fanout) need "
         "less";
}

/// Prints the exception that is being handled; returns its exit code.
int fail(const std::vector<std::string>& arguments) {
  const int status = detail::status_of_exception();
  const bool is_memory = status == MEZZO_OUT_OF_MEMORY;
  print_line(fmt::format("{}{}", mezzo_last_error(), is_memory ? memory_advice(arguments) : ""));
  // The launcher reports the rank that failed first, which may end after the others.
  const bool launched = std::getenv(kLaunchedVariable) != nullptr;
  if (launched && dist::detail::has_failed_with_another()) return kFailedWithAnother;
  return is_memory ? kInternalError : status;
}

}  // namespace

int run(const std::vector<std::string>& arguments) {
  static const std::vector<Command> commands = {
      {"train", "Trains a model on a data set", train_command},
      {"tune", "Searches the options with the best validation score", tune_command},
      {"launch", "Trains in several processes of this machine", launch_command},
      {"evaluate", "Measures the model of a checkpoint", evaluate_command},
      {"predict", "Writes the predictions of the model of a checkpoint", predict_command},
      {"compare", "Trains models in several precisions and sets them side by side",
       compare_command},
      {"doctor", "Finds the precision, the loss scale and the parts in float32 that a job needs",
       doctor_command},
      {"data", "Lists, describes, converts and cuts data sets", data_command},
  };
  fill_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // so that writes beyond `ulimit -f` return an error
  Warnings warnings;
  const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
  const amp::Float32Reductions float32_reductions;
  try {
    check_log_topics();
    const int code = dispatch("mezzo", "Graph neural networks in mixed precision", version_text,
                              commands, arguments);
    if (code == kSuccess) finish_output();
    return code;
  } catch (...) {
    return fail(arguments);
  }
}

}  // namespace mezzo::cli
