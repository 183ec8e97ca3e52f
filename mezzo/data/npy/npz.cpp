#include "mezzo/data/npy/npz.h"

#include <fstream>

#include <fmt/ranges.h>

#include "mezzo/data/npy/npy.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {

bool may_be_npz(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path) || std::filesystem::is_directory(path)) return false;
  if (path.extension() == ".npz" || !std::filesystem::is_regular_file(path)) return true;
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) return true;
  char start[2] = {};
  file.read(start, 2);
  return start[0] == 'P' && start[1] == 'K';
}

NpzFile::NpzFile(const std::filesystem::path& path) : archive_(path, "npz") {}

std::vector<std::string> NpzFile::keys() const {
  std::vector<std::string> keys;
  for (const std::string& name : archive_.names()) {
    if (name.ends_with(".npy")) keys.push_back(name.substr(0, name.size() - 4));
  }
  return keys;
}

std::string NpzFile::member_of(const std::string& key) const {
  require(contains(key), path(), "array '{}' is missing; it has: {}", key, fmt::join(keys(), ", "));
  return key + ".npy";
}

ZipEntry NpzFile::open(const std::string& key) const {
  return archive_.open(member_of(key), where(key));
}

std::string NpzFile::bytes(const std::string& key) const {
  return archive_.bytes(member_of(key), where(key));
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
