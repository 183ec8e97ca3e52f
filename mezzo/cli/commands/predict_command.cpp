#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include "mezzo/cli/commands/commands.h"
#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/options/checkpoint_arguments.h"
#include "mezzo/cli/progress.h"
#include "mezzo/cli/run.h"
#include "mezzo/cli/serve/request_handler.h"
#include "mezzo/cli/serve/server.h"
#include "mezzo/core/error.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/trained_model.h"

namespace mezzo::cli {

namespace {

/// The words of --nodes as ids: integers, or the name of a file of integers.
struct Nodes {
  std::string file;  ///< empty: none
  std::vector<std::int64_t> ids;
};

Nodes parse_nodes(const Arguments& words) {
  Nodes nodes;
  Arguments texts = words;
  if (words.size() == 1 && words[0].find_first_not_of("-0123456789") != std::string::npos) {
    nodes.file = words[0];
    std::ifstream file(nodes.file);
    texts.assign(std::istream_iterator<std::string>(file), {});
    if (!file.eof()) {
      detail::raise<IoError>(
          "--nodes: expected ids or a file with one on each line, '{}' cannot be read: {}",
          nodes.file, std::strerror(errno));
    }
    MEZZO_CHECK(!texts.empty(), "--nodes: {} has no ids", nodes.file);
  }
  const std::string place = nodes.file.empty() ? "--nodes" : "--nodes: " + nodes.file;
  for (const std::string& text : texts) {
    nodes.ids.push_back(parse_number<std::int64_t>(place, text));
  }
  return nodes;
}

/// The options of --serve.
struct ServeArguments {
  bool serve = false;
  std::string socket;  ///< empty: the standard input and output
  ServeOptions options;
};

void add_serve_options(OptionParser& app, ServeArguments& arguments) {
  ServeOptions& options = arguments.options;
  OptionGroup(app, "Server")
      .flag("--serve", arguments.serve,
            "Answer requests from the standard input, a JSON object on each line, such as "
            "{\"nodes\": [3, 1]} (docs/command.md)")
      .text("--socket", arguments.socket, "PATH",
            "Answer the connections to this new Unix socket instead")
      .number("--max-request-bytes", options.max_request_bytes, "Longest line")
      .number("--max-requests-per-second", options.max_requests_per_second,
              "Requests that are answered in a second, of all connections together");
}

void check(const OptionParser& app, const ServeArguments& arguments) {
  const std::vector<const char*> others =
      arguments.serve ? std::vector{"--output", "--nodes"}
                      : std::vector{"--socket", "--max-request-bytes", "--max-requests-per-second"};
  for (const char* const flag : others) {
    MEZZO_CHECK(!app.given(flag), "{}: an option of predict {} --serve", flag,
                arguments.serve ? "without" : "with");
  }
  const ServeOptions& options = arguments.options;
  MEZZO_CHECK(options.max_request_bytes >= 1, "--max-request-bytes: expected at least 1, got {}",
              options.max_request_bytes);
  MEZZO_CHECK(options.max_requests_per_second >= 1,
              "--max-requests-per-second: expected at least 1, got {}",
              options.max_requests_per_second);
}

int serve(ServeArguments& arguments, const CheckpointArguments& parsed) {
  arguments.options.should_stop = interrupted;
  std::optional<RequestHandler> handler;
  {
    const LoadedCheckpoint loaded = load(parsed);
    const Stage stage("preparing the graph");
    handler.emplace(loaded.trained, loaded.dataset);
  }
  ignore_sigpipe();
  handle_interrupts();
  if (arguments.socket.empty()) {
    serve_lines(*handler, STDIN_FILENO, STDOUT_FILENO, arguments.options);
  } else {
    serve_socket(*handler, arguments.socket, arguments.options);
  }
  return interrupted() ? kInterrupted : kSuccess;
}

}  // namespace

int predict_command(const Arguments& arguments) {
  CheckpointArguments parsed;
  parsed.data.load.labels_optional = true;
  std::string output;
  std::optional<Nodes> nodes;
  ServeArguments server;
  OptionParser app(
      "Writes the predictions of the best weights of a checkpoint for all nodes (edges, graphs, "
      "links), or for some; needs no labels",
      "mezzo predict");
  add_checkpoint_options(app, parsed);
  OptionGroup(app, "Data")
      .list(
          "--nodes", "N,...|FILE", [&](const Arguments& words) { nodes = parse_nodes(words); },
          "Only these nodes (edges, graphs, links), in this order: ids, or a file with one on each "
          "line (default: all)");
  OptionGroup(app, "Files")
      .text("--output", output, "FILE.csv|FILE.npy",
            "CSV with node, class, probability and the name of the class if there is one, of "
            "multi-label data the probability of each class, of numbers these; or npy with the "
            "classes or numbers (required without --serve)");
  add_serve_options(app, server);
  add_config(app);
  if (!parse_arguments(app, arguments)) return kSuccess;

  check(app, server);
  if (server.serve) return serve(server, parsed);
  MEZZO_CHECK(!output.empty(), "--output is required");
  const std::string kind = std::filesystem::path(output).extension().string();
  MEZZO_CHECK(kind == ".csv" || kind == ".npy",
              "--output: expected a name that ends in .csv or .npy, got '{}'", output);
  check_writable("--output", output);
  if (nodes) check_distinct("--output", output, "--nodes", nodes->file);
  const LoadedCheckpoint loaded = load(parsed);
  check_not_read("--output", output, loaded.dataset.origin);
  std::optional<Stage> stage(std::in_place, "predicting");
  const Predictions predictions = predict(loaded.dataset, loaded.trained,
                                          nodes ? at::tensor(nodes->ids, at::kLong) : at::Tensor());
  stage.reset();
  if (kind == ".csv") {
    write_csv(output, predictions);
  } else {
    write_npy(output, predictions);
  }
  const at::Tensor& rows =
      predictions.numbers.defined() ? predictions.numbers : predictions.classes;
  std::cout << fmt::format("{} predictions in {}\n", rows.size(0), output) << std::flush;
  return kSuccess;
}

}  // namespace mezzo::cli
