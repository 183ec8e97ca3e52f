#include "mezzo/data/npy/npz.h"

#include <algorithm>
#include <fstream>

#include <fmt/ranges.h>
#include <zip.h>

#include "mezzo/data/npy/npy.h"
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

bool may_be_npz(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path) || std::filesystem::is_directory(path)) return false;
  if (path.extension() == ".npz" || !std::filesystem::is_regular_file(path)) return true;
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return true;
  char start[2] = {};
  file.read(start, 2);
  return start[0] == 'P' && start[1] == 'K';
}

void NpzMember::Closer::operator()(::zip_file* file) const {
  zip_fclose(file);
}

std::size_t NpzMember::read(char* target, std::uint64_t count) const {
  const zip_int64_t got = zip_fread(file.get(), target, count);
  require(got >= 0, where, "damaged zip member: {}", zip_file_strerror(file.get()));
  return static_cast<std::size_t>(got);
}

void NpzFile::Closer::operator()(::zip* file) const {
  zip_discard(file);
}

NpzFile::NpzFile(const std::filesystem::path& path) : path_(path.string()) {
  file_bytes_ = regular_file_bytes(path);
  int code = 0;
  archive_.reset(zip_open(path_.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
  require(archive_ != nullptr, path_, "not a readable npz (zip) file: {}", zip_message(code));
  const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    const char* const name = zip_get_name(archive_.get(), index, ZIP_FL_ENC_RAW);
    require(name != nullptr, path_, "zip member {} has no name", i);
    require(members_.emplace(name, index).second, path_, "two zip members are called '{}'", name);
  }
}

std::vector<std::string> NpzFile::keys() const {
  std::vector<std::string> keys;
  for (const auto& [name, index] : members_) {
    if (name.ends_with(".npy")) keys.push_back(name.substr(0, name.size() - 4));
  }
  return keys;
}

NpzMember NpzFile::open(const std::string& key) const {
  const auto index = members_.find(key + ".npy");
  require(index != members_.end(), path_, "array '{}' is missing; it has: {}", key,
          fmt::join(keys(), ", "));
  const std::string at = where(key);
  zip_stat_t entry;
  require(zip_stat_index(archive_.get(), index->second, 0, &entry) == 0, at,
          "unreadable zip member: {}", zip_strerror(archive_.get()));
  check_entry(entry, file_bytes_, at);
  NpzMember member;
  member.where = at;
  member.file.reset(zip_fopen_index(archive_.get(), index->second, 0));
  member.size = entry.size;
  require(member.file != nullptr, at, "unreadable zip member: {}", zip_strerror(archive_.get()));
  return member;
}

std::string NpzFile::bytes(const std::string& key) const {
  const NpzMember member = open(key);
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
  require(bytes.size() == member.size, where(key),
          "the zip directory claims {} bytes, the member has {}", member.size,
          bytes.size() > member.size ? "more" : std::to_string(bytes.size()));
  return bytes;
}

at::Tensor NpzFile::numbers(const std::string& key) const {
  return parse_npy(bytes(key), where(key));
}

std::vector<std::string> NpzFile::text(const std::string& key) const {
  return parse_npy_text(bytes(key), where(key));
}

bool NpzFile::holds_objects(const std::string& key) const {
  return npy_holds_objects(bytes(key), where(key));
}

}  // namespace mezzo::data
