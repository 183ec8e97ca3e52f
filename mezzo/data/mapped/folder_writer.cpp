#include "mezzo/data/mapped/folder_writer.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <system_error>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mezzo/core/json.h"
#include "mezzo/data/npy/mapped_file.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::size_t kNpyAlignment = 64;  // of the items, as in numpy

std::int64_t items_of(const std::vector<std::int64_t>& shape) {
  std::int64_t items = 1;
  for (const std::int64_t size : shape) items *= size;
  return items;
}

/// Drops the slash of "folder/".
std::filesystem::path without_slash(const std::filesystem::path& path) {
  std::filesystem::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

/// The folder to replace: the target of a link, so the link remains.
std::filesystem::path place_of(const std::filesystem::path& output) {
  return std::filesystem::is_directory(output) ? std::filesystem::canonical(output)
                                               : without_slash(output);
}

/// Creates a new empty folder `<output>.partial-<number>`.
std::filesystem::path make_folder_beside(const std::filesystem::path& output) {
  std::random_device random;
  while (true) {
    std::filesystem::path path = output;
    path += fmt::format(".partial-{:08x}", random());
    std::error_code failure;
    const bool created = std::filesystem::create_directory(path, failure);
    require(!failure, path.string(), "cannot be created: {}", failure.message());
    if (created) return path;
  }
}

/// Waits until the names in a folder are on the disk.
void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(descriptor >= 0, folder.string(), "cannot be opened: {}", std::strerror(errno));
  const int failure = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  // Some file systems cannot sync folders and return EINVAL.
  require(failure == 0 || failure == EINVAL, folder.string(), "writing failed: {}",
          std::strerror(failure));
}

/// Replaces the folder `output` with `replacement` and returns the new path of the old one. Atomic
/// if the file system can exchange two folders.
std::filesystem::path replace_folder(const std::filesystem::path& replacement,
                                     const std::filesystem::path& output) {
  if (::renameat2(AT_FDCWD, replacement.c_str(), AT_FDCWD, output.c_str(), RENAME_EXCHANGE) == 0) {
    return replacement;
  }
  const std::filesystem::path old = make_folder_beside(output);
  std::error_code failure, ignored;
  std::filesystem::rename(output, old, failure);
  if (failure) std::filesystem::remove(old, ignored);
  require(!failure, output.string(), "cannot be replaced: {}", failure.message());
  std::filesystem::rename(replacement, output, failure);
  if (failure) std::filesystem::rename(old, output, ignored);
  require(!failure, output.string(), "cannot be put in place: {}", failure.message());
  return old;
}

/// Why `folder` must not be replaced; empty if it is of that kind and holds no other files.
std::string fault_of(const std::filesystem::path& folder, const FolderKind& kind) {
  if (!std::filesystem::is_regular_file(folder / kind.list)) {
    return fmt::format("is no {}, which alone can be overwritten", kind.name);
  }
  std::vector<std::string> names;
  try {
    names = kind.names(folder);
  } catch (const IoError& fault) {
    return fmt::format("its list of files is damaged: {}", fault.what());
  }
  names.emplace_back(kind.list);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return fmt::format("holds '{}', which its {} does not list", name, kind.list);
    }
    if (!std::filesystem::is_directory(entry.symlink_status())) continue;
    const std::string fault =
        kind.folders == nullptr ? "is a folder" : fault_of(entry.path(), *kind.folders);
    if (!fault.empty()) return fmt::format("holds '{}', which {}", name, fault);
  }
  return "";
}

/// Whether `source` is below the folder `output` and would be deleted with it.
bool is_below(const std::string& source, const std::filesystem::path& output) {
  std::error_code failure;
  const auto place_of_path = [&failure](const std::filesystem::path& path) {
    const std::filesystem::path absolute = std::filesystem::absolute(path, failure);
    return failure ? std::filesystem::path() : std::filesystem::weakly_canonical(absolute, failure);
  };
  const std::filesystem::path folder = place_of_path(output), place = place_of_path(source);
  return !folder.empty() && place != folder &&
         std::mismatch(folder.begin(), folder.end(), place.begin(), place.end()).first ==
             folder.end();
}

}  // namespace

void check_output(const std::filesystem::path& requested, bool overwrite, const FolderKind& kind,
                  const std::string& source) {
  const std::filesystem::path output = without_slash(requested);
  MEZZO_CHECK(output.has_filename() && output.filename() != "..",
              "output: expected a folder to make, got '{}'", output.string());
  const std::filesystem::path parent = std::filesystem::absolute(output).parent_path();
  require(std::filesystem::is_directory(parent), "output", "the folder {} does not exist",
          parent.string());
  if (!std::filesystem::exists(std::filesystem::symlink_status(output))) return;
  const bool folder = std::filesystem::is_directory(output);
  if (folder && std::filesystem::is_empty(output)) return;
  MEZZO_CHECK(folder, "output: {} exists and is no {}, which alone can be overwritten",
              output.string(), kind.name);
  const std::string fault = fault_of(output, kind);
  MEZZO_CHECK(fault.empty(), "output: {} exists and {}; name another folder", output.string(),
              fault);
  MEZZO_CHECK(overwrite, "output: {} exists; overwrite it (--overwrite), or name another folder",
              output.string());
  MEZZO_CHECK(!is_below(source, output),
              "output: {} exists and holds the data set {}, which is read; name another folder",
              output.string(), source);
}

std::string npy_header(at::ScalarType dtype, const std::vector<std::int64_t>& shape) {
  static_assert(std::endian::native == std::endian::little, "the items are written as they lie");
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", npy_descr(dtype),
                  fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  constexpr std::size_t kBefore = 10;
  text.append(kNpyAlignment - 1 - (kBefore + text.size()) % kNpyAlignment, ' ');
  text += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(text.size() & 0xFF);
  bytes += static_cast<char>(text.size() >> 8);
  return bytes + text;
}

at::Tensor rounded_rows(const at::Tensor& values, at::ScalarType dtype, std::int64_t first,
                        const std::string& where) {
  at::Tensor rounded = values.to(dtype).contiguous();
  const at::Tensor bad = at::isfinite(rounded).logical_not_();
  if (!bad.any().item<bool>()) return rounded;
  const std::int64_t row = first + bad.nonzero()[0][0].item<std::int64_t>();
  const auto value = values.masked_select(bad)[0].item<float>();  // the first in row-major order
  require(std::isfinite(value), where, "features: row {} holds {}, expected finite values", row,
          value);
  detail::raise<IoError>("{}: features: row {} holds {}, beyond the range of {}", where, row, value,
                         c10::getDtypeNames(dtype).first);
}

at::Tensor rounded_values(const at::Tensor& features, at::ScalarType dtype,
                          const std::string& where) {
  const at::Tensor values = features.values();
  at::Tensor rounded = values.to(dtype);
  const at::Tensor bad = at::isfinite(rounded).logical_not_().nonzero();
  if (bad.numel() == 0) return rounded;
  const std::int64_t item = bad[0][0].item<std::int64_t>();
  const std::int64_t row = features.crow_indices().le(item).sum().item<std::int64_t>() -
                           1;  // the last row that starts at or before it
  detail::raise<IoError>("{}: features: row {} holds {}, beyond the range of {}", where, row,
                         values[item].item<float>(), c10::getDtypeNames(dtype).first);
}

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  constexpr mode_t kMode = 0666;
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, kMode);
  require(descriptor_ >= 0, path_.string(), "cannot be written: {}", std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void OutputFile::close() {
  require(::fsync(descriptor_) == 0, path_.string(), "writing failed: {}", std::strerror(errno));
  const int failure = ::close(std::exchange(descriptor_, -1)) == 0 ? 0 : errno;
  require(failure == 0, path_.string(), "writing failed: {}", std::strerror(failure));
}

void OutputFile::write(const void* bytes, std::size_t size) const {
  const auto* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t written = ::write(descriptor_, next, size);
    if (written < 0 && errno == EINTR) continue;
    require(written > 0, path_.string(), "writing failed: {}", std::strerror(errno));
    next += written;
    size -= static_cast<std::size_t>(written);
  }
}

void OutputFile::reserve(std::size_t begin, std::size_t size) const {
  if (size == 0) return;
  int failure = EINTR;
  while (failure == EINTR) {
    failure = ::posix_fallocate(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(size));
  }
  require(failure == 0, path_.string(), "no room for its {} bytes: {}", begin + size,
          std::strerror(failure));
}

NpyWriter::NpyWriter(const std::filesystem::path& folder, const std::string& file,
                     at::ScalarType dtype, std::vector<std::int64_t> shape)
    : output_(folder / file),
      array_{file, dtype, std::move(shape)},
      missing_(items_of(array_.shape)) {
  const std::string header = npy_header(dtype, array_.shape);
  output_.write(header.data(), header.size());
}

void NpyWriter::append(const at::Tensor& items) {
  if (items.scalar_type() != array_.dtype || !items.is_contiguous() || items.numel() > missing_) {
    detail::raise<LogicError>("{}: {} items of {} do not fit", output_.path().string(),
                              items.numel(), c10::getDtypeNames(items.scalar_type()).first);
  }
  output_.write(items.const_data_ptr(), items.nbytes());
  missing_ -= items.numel();
}

const FolderArray& NpyWriter::finish() {
  if (missing_ != 0) {
    detail::raise<LogicError>("{}: {} items have not come", output_.path().string(), missing_);
  }
  output_.close();
  return array_;
}

NpyPlaces::NpyPlaces(const std::filesystem::path& folder, const std::string& file,
                     at::ScalarType dtype, std::int64_t count, std::optional<std::int64_t> width)
    : output_(folder / file), array_{file, dtype, {count}} {
  if (width) array_.shape.push_back(*width);
  const std::string header = npy_header(dtype, array_.shape);
  const std::size_t item_bytes =
      static_cast<std::size_t>(items_of(array_.shape)) * c10::elementSize(dtype);
  output_.write(header.data(), header.size());
  output_.reserve(header.size(), item_bytes);
  mapped_bytes_ = header.size() + item_bytes;
  mapped_ =
      ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, output_.descriptor(), 0);
  require(mapped_ != MAP_FAILED, output_.path().string(),
          "its {} bytes cannot be mapped to memory: {}", mapped_bytes_, std::strerror(errno));
  items_ = static_cast<char*>(mapped_) + header.size();
}

NpyPlaces::~NpyPlaces() {
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

const FolderArray& NpyPlaces::finish(std::int64_t count) {
  const std::string where = output_.path().string();
  const auto before =
      static_cast<std::size_t>(static_cast<char*>(items_) - static_cast<char*>(mapped_));
  const std::int64_t room = std::exchange(array_.shape[0], count);
  const std::string header = npy_header(array_.dtype, array_.shape);
  if (count > room || header.size() != before) {
    detail::raise<LogicError>("{}: {} of {} items", where, count, room);
  }
  std::memcpy(mapped_, header.data(), header.size());
  require(::msync(mapped_, mapped_bytes_, MS_SYNC) == 0, where, "writing failed: {}",
          std::strerror(errno));
  ::munmap(std::exchange(mapped_, nullptr), mapped_bytes_);
  const std::size_t bytes =
      before + static_cast<std::size_t>(items_of(array_.shape)) * c10::elementSize(array_.dtype);
  require(::ftruncate(output_.descriptor(), static_cast<off_t>(bytes)) == 0, where,
          "cannot be cut off: {}", std::strerror(errno));
  output_.close();
  return array_;
}

PartialFolder::PartialFolder(const std::filesystem::path& output, bool overwrite,
                             const FolderKind& kind, std::string source)
    : output_(without_slash(output)),
      overwrite_(overwrite),
      kind_(&kind),
      source_(std::move(source)) {
  check_output(output_, overwrite_, *kind_, source_);
  output_ = place_of(output_);
  partial_ = make_folder_beside(output_);
}

PartialFolder::~PartialFolder() {
  std::error_code ignored;
  if (!committed_) std::filesystem::remove_all(partial_, ignored);
}

void PartialFolder::commit() {
  check_output(output_, overwrite_, *kind_, source_);
  sync_folder(partial_);
  std::error_code failure;
  std::filesystem::path old;
  if (overwrite_ && std::filesystem::exists(output_)) {
    old = replace_folder(partial_, output_);
  } else {  // rename() also replaces an empty folder, but no other
    std::filesystem::rename(partial_, output_, failure);
    require(!failure, output_.string(), "cannot be put in place: {}", failure.message());
  }
  committed_ = true;
  sync_folder(output_.has_parent_path() ? output_.parent_path() : ".");
  if (!old.empty()) std::filesystem::remove_all(old, failure);
}

void write_manifest(const std::filesystem::path& folder, const FolderManifest& manifest) {
  OrderedJson arrays = OrderedJson::object();
  for (const auto& [name, array] : manifest.arrays) {
    arrays[name] = {{"file", array.file},
                    {"dtype", c10::getDtypeNames(array.dtype).first},
                    {"shape", array.shape}};
  }
  OrderedJson object = {
      {"format", "mezzo"},
      {"version", 1},
      {"name", manifest.name},
      {"num_nodes", manifest.num_nodes},
      {"num_edges", manifest.num_edges},
      {"num_features", manifest.num_features},
      {"num_classes", manifest.num_classes},
      {"metric", metric_name(manifest.metric)},
      {"target", name_of(TaskTargets{}, manifest.target)},
      {"class_names", manifest.class_names},
      {"arrays", arrays},
  };
  if (manifest.num_edge_types != 1) object["num_edge_types"] = manifest.num_edge_types;
  if (const std::optional<FolderPart>& part = manifest.part) {
    object["part"] = {{"index", part->index},
                      {"num_parts", part->num_parts},
                      {"hops", part->hops},
                      {"num_nodes", part->num_nodes},
                      {"num_edges", part->num_edges}};
  }
  const std::string text = json_text(object);
  OutputFile file(folder / kManifestFile);
  file.write(text.data(), text.size());
  file.close();
}

}  // namespace mezzo::data
