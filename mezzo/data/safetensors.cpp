#include "mezzo/data/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "mezzo/core/json.h"
#include "mezzo/data/npy/npy.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // as the format's own reader
constexpr std::size_t kMostSizes = 32;
constexpr auto kMetadata = "__metadata__";

struct SafetensorsType {
  std::string_view name;
  const char* descr;  // of numpy
  std::int64_t bytes;
  at::ScalarType dtype;
};

constexpr SafetensorsType kSafetensorsTypes[] = {
    {"BOOL", "|b1", 1, at::kBool}, {"U8", "|u1", 1, at::kByte},       {"I8", "|i1", 1, at::kChar},
    {"I16", "<i2", 2, at::kShort}, {"I32", "<i4", 4, at::kInt},       {"I64", "<i8", 8, at::kLong},
    {"F16", "<f2", 2, at::kHalf},  {"BF16", "<i2", 2, at::kBFloat16},  // numpy has none
    {"F32", "<f4", 4, at::kFloat}, {"F64", "<f8", 8, at::kDouble}};

/// A tensor as the header describes it.
struct TensorPlace {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // after the header
};

/// A list of numbers of at least 0 that fit int64.
std::vector<std::int64_t> counts_of(const nlohmann::json& entry, const char* key,
                                    const std::string& where) {
  const auto list = entry.find(key);
  require(list != entry.end() && list->is_array() && list->size() <= kMostSizes, where,
          "expected a list under '{}'", key);
  std::vector<std::int64_t> counts;
  for (const nlohmann::json& item : *list) {
    require(holds<std::int64_t>(item) && item.get<std::int64_t>() >= 0, where,
            "expected counts under '{}'", key);
    counts.push_back(item.get<std::int64_t>());
  }
  return counts;
}

TensorPlace tensor_place(const std::string& name, const nlohmann::json& entry,
                         const std::string& path) {
  const std::string where = path + ": " + name;
  require(entry.is_object(), where, "expected an object");
  const auto dtype = entry.find("dtype");
  require(dtype != entry.end() && dtype->is_string(), where, "expected a text under 'dtype'");
  const std::string& type_name = dtype->get_ref<const std::string&>();
  const auto* const type =
      std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes),
                   [&](const SafetensorsType& one) { return one.name == type_name; });
  require(type != std::end(kSafetensorsTypes), where, "the dtype '{}' is not read", type_name);
  const std::vector<std::int64_t> offsets = counts_of(entry, "data_offsets", where);
  require(offsets.size() == 2 && offsets[0] <= offsets[1], where,
          "expected the first and the last offset under 'data_offsets'");
  const auto begin = static_cast<std::uint64_t>(offsets[0]),
             end = static_cast<std::uint64_t>(offsets[1]);
  const std::vector<std::int64_t> shape = counts_of(entry, "shape", where);
  count_items(shape, type->bytes, end - begin, where);
  return {.name = name, .type = type, .shape = shape, .begin = begin, .end = end};
}

/// Throws IoError unless the tensors, sorted by place, are next to each other and fill `size`.
void check_places(const std::vector<TensorPlace>& places, std::uint64_t size,
                  const std::string& path) {
  std::uint64_t end = 0;
  for (const TensorPlace& place : places) {
    require(place.begin == end, path, "'{}' begins at byte {} of the data, expected {}", place.name,
            place.begin, end);
    end = place.end;
  }
  require(end == size, path, "its tensors have {} bytes, the file has {} after the header", end,
          size);
}

/// The header, from the start of the file.
nlohmann::json header_of(std::string_view bytes, const std::string& path) {
  nlohmann::json header = nlohmann::json::parse(bytes.begin(), bytes.end(), nullptr,
                                                /*allow_exceptions=*/false);
  require(header.is_object(), path, "the header is no JSON object");
  return header;
}

/// Adds the names that the metadata maps to another.
void add_shared(const nlohmann::json& header, std::map<std::string, at::Tensor>& tensors) {
  const auto metadata = header.find(kMetadata);
  if (metadata == header.end()) return;
  for (const auto& [name, value] : metadata->items()) {
    if (!value.is_string()) continue;
    const auto shared = tensors.find(value.get_ref<const std::string&>());
    if (shared != tensors.end()) tensors.emplace(name, shared->second);
  }
}

}  // namespace

std::map<std::string, at::Tensor> read_safetensors(const std::filesystem::path& path) {
  const std::string file = path.string(), contents = read_file(path);
  const std::string_view bytes = contents;
  require(bytes.size() >= kLengthBytes, file, "truncated: expected a .safetensors file");
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(bytes[i]);
  }
  require(length <= kMostHeaderBytes && length <= bytes.size() - kLengthBytes, file,
          "a header of {} bytes in a file of {}: no .safetensors file, or truncated", length,
          bytes.size());
  const nlohmann::json header = header_of(bytes.substr(kLengthBytes, length), file);
  const std::string_view data = bytes.substr(kLengthBytes + length);
  std::vector<TensorPlace> places;
  for (const auto& [name, entry] : header.items()) {
    if (name != kMetadata) places.push_back(tensor_place(name, entry, file));
  }
  std::sort(places.begin(), places.end(), [](const TensorPlace& a, const TensorPlace& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_places(places, data.size(), file);
  std::map<std::string, at::Tensor> tensors;
  for (const TensorPlace& place : places) {
    const at::Tensor items = tensor_from_bytes(place.type->descr, place.shape, ArrayOrder::kC,
                                               data.substr(place.begin, place.end - place.begin),
                                               file + ": " + place.name);
    tensors.emplace(place.name, items.view(place.type->dtype));
  }
  add_shared(header, tensors);
  return tensors;
}

}  // namespace mezzo::data
