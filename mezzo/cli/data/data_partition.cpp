#include "mezzo/cli/data/data_partition.h"

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "mezzo/cli/interrupt.h"
#include "mezzo/cli/options/arguments.h"
#include "mezzo/cli/progress.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/core/table.h"
#include "mezzo/data/convert.h"
#include "mezzo/data/parts.h"
#include "mezzo/graph/graph.h"
#include "mezzo/sampling/subgraphs/partition.h"
#include "mezzo/train/clock.h"
#include "mezzo/train/files/files.h"

namespace mezzo::cli {
namespace {

std::string format_parts(const PartsReport& report, const std::string& output, double seconds) {
  std::vector<std::vector<std::string>> rows = {{"folder", "own nodes", "halo nodes", "edges"}};
  for (const PartSize& part : report.parts) {
    rows.push_back({part.folder, fmt::format("{}", part.own_nodes),
                    fmt::format("{}", part.halo_nodes), fmt::format("{}", part.edges)});
  }
  return format_table(rows) +
         fmt::format(
             "{} in {}: {} nodes, {} edges, {} of them between parts; each node {:.2f} times "
             "with halos of {} hops\n{:.2f} s\n",
             report.name, output, report.num_nodes, report.num_edges, report.edge_cut,
             report.replication(), report.hops, seconds);
}

std::string parts_to_json(const PartsReport& report, const std::string& output, double seconds) {
  OrderedJson parts = OrderedJson::array();
  for (const PartSize& part : report.parts) {
    parts.push_back({{"folder", part.folder},
                     {"own_nodes", part.own_nodes},
                     {"halo_nodes", part.halo_nodes},
                     {"edges", part.edges}});
  }
  const OrderedJson object = {{"dataset", report.name},
                              {"output", output},
                              {"nodes", report.num_nodes},
                              {"edges", report.num_edges},
                              {"hops", report.hops},
                              {"edge_cut", report.edge_cut},
                              {"parts", parts},
                              {"replication", report.replication()},
                              {"seconds", seconds}};
  return json_text(object);
}

/// Throws what write_parts() would after the cut: InvalidArgument where something is there that may
/// not be replaced, IoError where no folder can be made.
void check_folder(const std::string& dataset, const std::string& output, bool overwrite) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(output).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  std::error_code ignored;
  const bool is_there = fs::exists(fs::symlink_status(folder, ignored));
  const bool is_empty = fs::is_directory(folder, ignored) && fs::is_empty(folder, ignored);
  MEZZO_CHECK(overwrite || !is_there || is_empty,
              "--output: {} exists; name another folder, or --overwrite a folder of parts", output);
  data::check_output_of_parts(folder, overwrite, data::origin_of(dataset));
  if (fs::is_directory(folder, ignored)) folder = fs::canonical(folder);  // the target of a link
  check_writable("--output", folder.string() + ".partial");
}

}  // namespace

int partition_command(const Arguments& arguments) {
  std::string dataset, split, output, json;
  std::optional<std::int64_t> num_parts;
  std::optional<Task> task;
  CsvColumns csv;
  PartsOptions options;
  PartitionOptions cut;
  OptionParser app("Cuts a data set into parts with halos, one for each process that trains on it",
                   "mezzo data partition");
  OptionGroup(app, "Data")
      .text("--dataset", dataset, "PATH|NAME",
            "A data set's file or folder, or a name of 'mezzo data list' (required)")
      .text("--split", split, "NAME", "Which of the splits that have names, as for train")
      .number("-k", num_parts, "Parts, as many as processes (required)")
      .number("--hops", options.hops, "How far the halos reach: as many hops as layers")
      .text("--output", output, "FOLDER", "The folder to make (required)")
      .flag("--overwrite", options.overwrite, "Replace a folder of parts, and nothing else");
  add_format_options(app, task, csv);
  OptionGroup(app, "Cut")
      .flag("--balance-edges", cut.balance_edges, "Balance the parts by edges instead of nodes")
      .number("--seed", cut.seed, "Seed of the cut");
  add_report_options(app, json);
  if (!parse_arguments(app, arguments)) return kSuccess;
  ignore_sigpipe();

  MEZZO_CHECK(!dataset.empty(), "--dataset is required");
  MEZZO_CHECK(num_parts, "-k is required");
  MEZZO_CHECK(*num_parts >= 1, "-k: expected at least 1, got {}", *num_parts);
  check_options(options);
  MEZZO_CHECK(!output.empty(), "--output is required");
  check_folder(dataset, output, options.overwrite);
  if (!json.empty()) check_writable("--json", json);
  check_not_read("--json", json, data::origin_of(dataset));
  const Clock::time_point start = Clock::now();
  const Dataset whole =
      load({.dataset = dataset,
            .load = {.split = split, .labels_optional = true, .task = task, .csv = csv}});
  MEZZO_CHECK(*num_parts <= whole.num_nodes, "-k: expected at most the {} nodes of {}, got {}",
              whole.num_nodes, dataset, *num_parts);
  std::optional<Stage> stage(std::in_place, fmt::format("cutting into {} parts", *num_parts));
  const at::Tensor part_of_node = metis_partition(topology_of(whole), *num_parts, cut);
  options.should_stop = interrupted;
  handle_interrupts();
  stage.emplace("writing " + output);
  const PartsReport report = write_parts(whole, part_of_node, output, options);
  stage.reset();
  if (report.stopped) return kInterrupted;

  const double seconds = seconds_since(start);
  std::cout << format_parts(report, output, seconds) << std::flush;
  if (!json.empty()) {
    replace_file(json, [&](std::ostream& file) { file << parts_to_json(report, output, seconds); });
  }
  return kSuccess;
}

}  // namespace mezzo::cli
