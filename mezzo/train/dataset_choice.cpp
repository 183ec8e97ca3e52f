#include "mezzo/train/dataset_choice.h"

#include <string_view>

#include "mezzo/core/error.h"
#include "mezzo/data/convert.h"
#include "mezzo/data/formats.h"
#include "mezzo/train/options/option_fields.h"

namespace mezzo {

void choose_dataset(const TrainedModel& trained, std::string& dataset, LoadOptions& load) {
  const TrainOptions& options = trained.options;
  if (dataset.empty()) {
    MEZZO_CHECK(!options.dataset.empty(),
                "dataset: expected a path or a name, got none, and the checkpoint has none");
    dataset = options.dataset;
    if (load.split.empty()) load.split = options.split;
    if (!load.metric) load.metric = trained.data.metric;
  }
  if (!load.task) load.task = trained.data.task;
  take_columns(options.csv, dataset, load.csv);
}

void take_columns(const CsvColumns& training, const std::string& dataset, CsvColumns& columns) {
  const data::Format* const format = data::find_format(data::origin_of(dataset));
  if (format == nullptr || std::string_view(format->name) != data::kCsvFormatName) return;
  fields::for_each(fields::kColumns, [&](const auto& field) {
    std::string& column = columns.*field.member;
    if (column.empty()) column = training.*field.member;
  });
}

}  // namespace mezzo
