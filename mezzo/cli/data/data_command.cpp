#include <iostream>

#include "mezzo/cli/commands/commands.h"
#include "mezzo/cli/data/data_convert.h"
#include "mezzo/cli/data/data_info.h"
#include "mezzo/cli/data/data_partition.h"
#include "mezzo/cli/options/arguments.h"
#include "mezzo/cli/run.h"
#include "mezzo/core/error.h"
#include "mezzo/core/json.h"
#include "mezzo/core/table.h"
#include "mezzo/data/convert.h"
#include "mezzo/train/files/files.h"

namespace mezzo::cli {
namespace {

std::string list_to_json(const std::vector<KnownDataset>& known) {
  OrderedJson lines = OrderedJson::array();
  for (const KnownDataset& one : known) {
    lines.push_back({{"name", one.name},
                     {"description", one.description},
                     {"available", one.available},
                     {"path", one.path}});
  }
  const OrderedJson object = {{"datasets", lines}};
  return json_text(object);
}

int list_command(const Arguments& arguments) {
  std::string directory, json;
  OptionParser app("Lists the data sets that have a name, and those of a folder",
                   "mezzo data list");
  OptionGroup(app, "Data")
      .text("--directory", directory, "FOLDER", "Also list the data sets in this folder");
  add_report_options(app, json);
  if (!parse_arguments(app, arguments)) return kSuccess;

  if (!json.empty()) check_writable("--json", json);
  const std::vector<KnownDataset> known = list_datasets(directory);
  for (const KnownDataset& one : known) check_not_read("--json", json, one.path);
  std::vector<std::vector<std::string>> rows = {{"name", "available", "path", "description"}};
  for (const KnownDataset& one : known) {
    rows.push_back({one.name, one.available ? "yes" : "no", one.path, one.description});
  }
  std::cout << format_table(rows, rows.front().size()) << std::flush;
  if (!json.empty()) {
    replace_file(json, [&](std::ostream& file) { file << list_to_json(known); });
  }
  return kSuccess;
}

int info_command(const Arguments& arguments) {
  std::string dataset, split, json;
  std::optional<Task> task;
  CsvColumns csv;
  OptionParser app("Describes a data set: sizes, classes, splits, degrees", "mezzo data info");
  OptionGroup(app, "Data")
      .text("--dataset", dataset, "PATH|NAME",
            "A data set's file or folder, or a name of 'mezzo data list' (required)")
      .text("--split", split, "NAME",
            "Which of the splits that have names: *_mask_NAME.npy of an npy folder, a split "
            "type of OGB, a task of GraphBolt");
  add_format_options(app, task, csv);
  add_report_options(app, json);
  if (!parse_arguments(app, arguments)) return kSuccess;

  MEZZO_CHECK(!dataset.empty(), "--dataset is required");
  if (!json.empty()) check_writable("--json", json);
  check_not_read("--json", json, data::origin_of(dataset));
  const DatasetInfo info =
      describe(load({.dataset = dataset,
                     .load = {.split = split, .labels_optional = true, .task = task, .csv = csv}}));
  std::cout << format_info(info) << std::flush;
  if (!json.empty()) {
    replace_file(json, [&](std::ostream& file) { file << info_to_json(info); });
  }
  return kSuccess;
}

}  // namespace

int data_command(const Arguments& arguments) {
  static const std::vector<Command> commands = {
      {"list", "Lists the data sets that are known by name", list_command},
      {"info", "Describes one data set", info_command},
      {"convert", "Writes a data set as a folder that is mapped to memory", convert_command},
      {"partition", "Cuts a data set into parts for as many processes", partition_command},
  };
  return dispatch("mezzo data", "Lists, describes, converts and cuts data sets", {}, commands,
                  arguments);
}

}  // namespace mezzo::cli
