#include "mezzo/data/npy/zip_file.h"

#include <algorithm>

#include <zip.h>

#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::uint64_t kStepBytes = std::uint64_t{1} << 24;

std::string zip_message(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

/// Checks the directory entry of a member before reading the member.
void check_entry(const zip_stat_t& entry, std::uint64_t file_bytes, const std::string& where) {
  constexpr std::uint64_t kNeeded =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  require((entry.valid & kNeeded) == kNeeded, where, "its zip directory entry is incomplete");
  require(entry.encryption_method == ZIP_EM_NONE, where, "encrypted members are not read");
  require(entry.comp_method == ZIP_CM_STORE || entry.comp_method == ZIP_CM_DEFLATE, where,
          "zip method {}, expected stored (0) or deflated (8)", entry.comp_method);
  require(entry.comp_size <= file_bytes, where,
          "the zip directory claims {} compressed bytes, the file has {}", entry.comp_size,
          file_bytes);
  const std::uint64_t most =
      entry.comp_method == ZIP_CM_STORE ? entry.comp_size : entry.comp_size * kDeflateRatio;
  require(entry.size <= most, where,
          "the zip directory claims {} bytes, too many to come from {} compressed ones", entry.size,
          entry.comp_size);
}

}  // namespace

void ZipEntry::Closer::operator()(::zip_file* file) const {
  zip_fclose(file);
}

std::size_t ZipEntry::read(char* target, std::uint64_t count) const {
  const zip_int64_t got = zip_fread(file.get(), target, count);
  require(got >= 0, where, "damaged zip member: {}", zip_file_strerror(file.get()));
  return static_cast<std::size_t>(got);
}

void ZipFile::Closer::operator()(::zip* file) const {
  zip_discard(file);
}

ZipFile::ZipFile(const std::filesystem::path& path, const char* kind) : path_(path.string()) {
  file_bytes_ = regular_file_bytes(path);
  int code = 0;
  archive_.reset(zip_open(path_.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
  require(archive_ != nullptr, path_, "not a readable {} (zip) file: {}", kind, zip_message(code));
  const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const char* const name = zip_get_name(archive_.get(), index, ZIP_FL_ENC_RAW);
    require(name != nullptr, path_, "zip member {} has no name", i);
    require(members_.emplace(name, index).second, path_, "two zip members are called '{}'", name);
  }
}

std::vector<std::string> ZipFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, index] : members_) names.push_back(name);
  return names;
}

ZipEntry ZipFile::open(const std::string& name, const std::string& where) const {
  const std::uint64_t index = members_.at(name);
  zip_stat_t entry;
  require(zip_stat_index(archive_.get(), index, 0, &entry) == 0, where, "unreadable zip member: {}",
          zip_strerror(archive_.get()));
  check_entry(entry, file_bytes_, where);
  ZipEntry member;
  member.where = where;
  member.file.reset(zip_fopen_index(archive_.get(), index, 0));
  member.size = entry.size;
  require(member.file != nullptr, where, "unreadable zip member: {}", zip_strerror(archive_.get()));
  return member;
}

std::string ZipFile::bytes(const std::string& name, const std::string& where) const {
  const ZipEntry member = open(name, where);
  std::string bytes;
  // Reading one byte more detects a longer member, and makes libzip verify the checksum.
  while (bytes.size() <= member.size) {
    const std::size_t start = bytes.size();
    const std::uint64_t step = std::min<std::uint64_t>(kStepBytes, member.size + 1 - start);
    bytes.resize(start + step);
    const std::size_t got = member.read(bytes.data() + start, step);
    bytes.resize(start + got);
    if (got == 0) break;
  }
  require(bytes.size() == member.size, where,
          "the zip directory claims {} bytes, the member has {}", member.size,
          bytes.size() > member.size ? "more" : std::to_string(bytes.size()));
  return bytes;
}

}  // namespace mezzo::data
