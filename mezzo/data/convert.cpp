#include "mezzo/data/convert.h"

#include <chrono>

#include <c10/core/ScalarType.h>

#include "mezzo/data/conversion.h"
#include "mezzo/data/formats.h"
#include "mezzo/data/mapped/folder_writer.h"
#include "mezzo/data/readers.h"

namespace mezzo {
namespace {

data::FolderManifest convert_into(const std::filesystem::path& folder, const std::string& input,
                                  const ConvertOptions& options) {
  data::Announcer announcer(options);
  const LoadOptions load_options{.split = options.split,
                                 .split_seed = options.split_seed,
                                 .labels_optional = true,
                                 .on_lines = [&announcer] { announcer.report_lines(); },
                                 .task = options.task,
                                 .csv = options.csv};
  const std::unique_ptr<data::GraphSource> source = data::open_source(input, load_options);
  MEZZO_CHECK(source->dataset() == nullptr || !source->dataset()->part,
              "convert: {} is a part of a data set; convert the whole", input);
  return data::write_mapped_dataset(*source, folder, input, options, announcer);
}

ConvertReport report_of(const data::FolderManifest& manifest) {
  ConvertReport report;
  report.name = manifest.name;
  report.num_nodes = manifest.num_nodes;
  report.num_edges = manifest.num_edges;
  report.num_features = manifest.num_features;
  report.num_classes = manifest.num_classes;
  for (const auto& [name, array] : manifest.arrays) {
    auto bytes = static_cast<std::int64_t>(c10::elementSize(array.dtype));
    for (const std::int64_t size : array.shape) bytes *= size;
    report.files.push_back({array.file, c10::getDtypeNames(array.dtype).first, array.shape, bytes});
  }
  return report;
}

}  // namespace

ConvertReport convert_dataset(const std::string& input, const std::filesystem::path& output,
                              const ConvertOptions& options) {
  const at::ScalarType dtype = options.feature_dtype;
  MEZZO_CHECK(dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf,
              "feature_dtype: expected float32, bfloat16 or float16, got {}",
              c10::getDtypeNames(dtype).first);
  const auto start = std::chrono::steady_clock::now();
  ConvertReport report;
  try {
    data::with_io_errors(input, "cannot be converted", [&] {
      data::PartialFolder folder(output, options.overwrite, data::kMappedDataset,
                                 data::origin_of(input));
      report = report_of(convert_into(folder.path(), input, options));
      folder.commit();
    });
  } catch (const data::ConversionStopped&) {
    report.stopped = true;
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace mezzo
