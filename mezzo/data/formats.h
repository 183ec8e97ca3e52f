#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "mezzo/core/export.h"
#include "mezzo/data/source/graph_source.h"

/// The formats of data sets; internal.
namespace mezzo::data {

/// A format. Its file in data/formats/ defines it, and the table in formats.cpp lists it.
struct Format {
  const char* name;  ///< as `mezzo data list` prints it
  /// A folder is of this format if it has one of these files.
  std::array<const char*, 4> files;
  /// Opens a path of this format. Streamed formats read on request only.
  std::unique_ptr<GraphSource> (*open)(const std::filesystem::path& path,
                                       const LoadOptions& options);
  /// Recognises other paths by name, by the keys of an npz file, or by the first lines of a text;
  /// may be null. `path` might not exist.
  bool (*recognise)(const std::filesystem::path& path) = nullptr;
  /// The names and paths of the data sets in a folder, if the format keeps several in one.
  std::map<std::string, std::filesystem::path> (*sets)(const std::filesystem::path& folder) =
      nullptr;
};

/// Format::name of the format that LoadOptions::csv is for.
inline constexpr const char* kCsvFormatName = "CSV folder";

/// Format::open of a class of sources.
template <class Source>
std::unique_ptr<GraphSource> open_as(const std::filesystem::path& path,
                                     const LoadOptions& options) {
  return std::make_unique<Source>(path, options);
}

/// Format::open of a format that is read as a whole.
template <Dataset (*kRead)(const std::filesystem::path&, const LoadOptions&)>
std::unique_ptr<GraphSource> open_whole(const std::filesystem::path& path,
                                        const LoadOptions& options) {
  return source_of(kRead(path, options));
}

/// The format of a file or folder, or nullptr. Throws IoError if the file is damaged.
MEZZO_API const Format* find_format(const std::filesystem::path& path);

/// Opens the data set that load_dataset would read. Throws as load_dataset does; a data set that is
/// read as a whole (GraphSource::dataset) is checked.
MEZZO_API std::unique_ptr<GraphSource> open_source(const std::string& name_or_path,
                                                   const LoadOptions& options);

}  // namespace mezzo::data
