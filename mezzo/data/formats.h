#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "mezzo/core/export.h"
#include "mezzo/data/source/graph_source.h"

/// The formats of data sets; not for callers of the library.
namespace mezzo::data {

/// A format. Its file in data/formats/ defines one, and the table in formats.cpp lists it.
struct Format {
  const char* name;  ///< as `mezzo data list` prints it
  /// Whether a file or folder is of this format. Looks at file names, at the keys of an npz file,
  /// and at the first lines of a text whose name does not say what it is. `path` need not exist.
  bool (*recognise)(const std::filesystem::path& path);
  /// Opens a path that is recognised.
  std::unique_ptr<GraphSource> (*open)(const std::filesystem::path& path,
                                       const LoadOptions& options);
  /// The names and paths of the data sets in a folder, if the format keeps several in one.
  std::map<std::string, std::filesystem::path> (*sets)(const std::filesystem::path& folder) =
      nullptr;
};

/// The format of a file or folder, or nullptr. Throws IoError if the file is damaged.
MEZZO_API const Format* find_format(const std::filesystem::path& path);

/// Opens the data set that load_dataset would read. Throws as load_dataset does; a data set that is
/// read at once (GraphSource::dataset) is checked.
MEZZO_API std::unique_ptr<GraphSource> open_source(const std::string& name_or_path,
                                                   const LoadOptions& options);

}  // namespace mezzo::data
