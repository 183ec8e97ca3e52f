#include "mezzo/data/pickle/torch_file.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/data/npy/npy.h"
#include "mezzo/data/npy/zip_file.h"
#include "mezzo/data/pickle/pickle_machine.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::size_t kMostItems = 64, kMostDimensions = 2;  // of data sets
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 48;
/// The first pickle of the form before PyTorch 1.6, a magic number.
constexpr std::string_view kLegacyStart("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.",
                                        15);

struct StorageType {
  PickleName name;
  const char* descr;  // of numpy
  at::ScalarType dtype;
};

constexpr StorageType kStorageTypes[] = {
    {PickleName::kBoolStorage, "|b1", at::kBool},
    {PickleName::kByteStorage, "|u1", at::kByte},
    {PickleName::kCharStorage, "|i1", at::kChar},
    {PickleName::kShortStorage, "<i2", at::kShort},
    {PickleName::kIntStorage, "<i4", at::kInt},
    {PickleName::kLongStorage, "<i8", at::kLong},
    {PickleName::kHalfStorage, "<f2", at::kHalf},
    {PickleName::kBFloat16Storage, "<i2", at::kBFloat16},  // numpy has none
    {PickleName::kFloatStorage, "<f4", at::kFloat},
    {PickleName::kDoubleStorage, "<f8", at::kDouble}};

const StorageType& type_of(const PickleStorage& storage, const std::string& where) {
  const auto* const type =
      std::find_if(std::begin(kStorageTypes), std::end(kStorageTypes),
                   [&](const StorageType& one) { return one.name == storage.type; });
  require(type != std::end(kStorageTypes), where, "a tensor of a dtype that is not read");
  return *type;
}

/// The bytes of a storage.
using BytesOf = std::function<std::string(const PickleStorage& storage)>;

/// The storages of a file, each read once.
class Storages {
 public:
  explicit Storages(BytesOf bytes_of) : bytes_of_(std::move(bytes_of)) {}

  /// The view of its storage, which it must not exceed, nor repeat numbers: a copy could be much
  /// larger than the file.
  at::Tensor tensor_of(const PickleTensor& view, const std::string& where) {
    check(view, where);
    const at::Tensor flat = numbers_of(*view.storage, where);
    const bool is_empty = std::count(view.sizes.begin(), view.sizes.end(), 0) != 0;
    if (is_empty) return at::empty(view.sizes, flat.options());
    return flat.as_strided(view.sizes, view.strides, view.offset);
  }

 private:
  static void check(const PickleTensor& view, const std::string& where);

  at::Tensor numbers_of(const PickleStorage& storage, const std::string& where) {
    at::Tensor& numbers = numbers_[{storage.key, storage.type}];
    if (!numbers.defined()) {
      const StorageType& type = type_of(storage, where);
      const at::Tensor items =
          tensor_from_bytes(type.descr, {storage.numel}, ArrayOrder::kC, bytes_of_(storage), where);
      numbers = items.view(type.dtype);
    }
    require(numbers.numel() == storage.numel, where, "a storage of {} and of {} numbers",
            numbers.numel(), storage.numel);
    return numbers;
  }

  BytesOf bytes_of_;
  std::map<std::pair<std::string_view, PickleName>, at::Tensor> numbers_;
};

void Storages::check(const PickleTensor& view, const std::string& where) {
  const std::int64_t limit = view.storage->numel;
  require(limit >= 0 && limit <= kMostNumbers && view.offset >= 0 && view.offset <= limit &&
              view.sizes.size() == view.strides.size(),
          where, "a tensor with an offset of {} in {} numbers, {} sizes and {} strides",
          view.offset, limit, view.sizes.size(), view.strides.size());
  std::int64_t count = 1, extent = 1, last = view.offset;  // extent: of the sizes but zeros
  for (const std::int64_t size : view.sizes) {
    require(size >= 0 && size <= kMostNumbers / extent && (size == 0 || count <= limit / size),
            where, "a tensor of size {} in a storage of {} numbers", size, limit);
    count *= size;
    extent *= std::max<std::int64_t>(size, 1);
  }
  for (std::size_t i = 0; count > 0 && i < view.sizes.size(); ++i) {
    const std::int64_t steps = view.sizes[i] - 1, stride = view.strides[i];
    require(stride >= 0 && (steps == 0 || stride <= limit / steps), where,
            "a tensor of stride {} in a storage of {} numbers", stride, limit);
    last += stride * steps;
  }
  require(count == 0 || last < limit, where, "a tensor beyond the {} numbers of its storage",
          limit);
}

using Tensors = std::map<std::string, at::Tensor>;
/// Makes tensors of the value of a file.
using Collect = std::function<Tensors(const PickleValue& value, Storages storages)>;

/// Collects the numbers of a value.
class Collector {
 public:
  Collector(std::string where, Storages storages)
      : where_(std::move(where)), storages_(std::move(storages)) {}

  void add(const PickleValue& value, const std::string& name) {
    const std::string where = name.empty() ? where_ : where_ + ": " + name;
    if (const auto* const* dict = std::get_if<PickleDict*>(&value)) {
      add_items(**dict, name);
    } else if (const auto* const* tensor = std::get_if<PickleTensor*>(&value)) {
      require((*tensor)->sizes.size() <= kMostDimensions, where, "a tensor of {} sizes",
              (*tensor)->sizes.size());
      insert(name, storages_.tensor_of(**tensor, where).contiguous());
    } else if (std::holds_alternative<PickleArray*>(value)) {
      insert(name, array_of(value, where));
    }
  }

  Tensors finish() {
    require(!arrays_.empty(), where_, "no tensors or arrays of numbers");
    return std::move(arrays_);
  }

 private:
  void add_items(const PickleDict& dict, const std::string& name) {
    require(name.find('/') == std::string::npos, where_, "dicts that are nested three times");
    for (const auto& [key, item] : dict.items) {
      const auto* const text = std::get_if<std::string_view>(&key);
      require(text != nullptr && !text->empty(), where_, "a dict with keys that are no text");
      require(++num_items_ <= kMostItems, where_, "more than {} items", kMostItems);
      add(item, name.empty() ? std::string(*text) : name + "/" + std::string(*text));
    }
  }

  void insert(const std::string& name, const at::Tensor& numbers) {
    require(arrays_.emplace(name, numbers).second, where_, "'{}' occurs twice", name);
  }

  std::string where_;
  Storages storages_;
  Tensors arrays_;
  std::size_t num_items_ = 0;
};

/// The tensors of a state dict.
Tensors collect_state(const PickleValue& value, Storages storages, const std::string& where) {
  constexpr auto kExpected = "expected what torch.save(model.state_dict(), path) writes";
  const auto* const* const dict = std::get_if<PickleDict*>(&value);
  require(dict != nullptr, where, "holds no dict: {}", kExpected);
  Tensors tensors;
  for (const auto& [key, item] : (*dict)->items) {
    const auto* const name = std::get_if<std::string_view>(&key);
    require(name != nullptr, where, "holds a dict whose keys are not strings: {}", kExpected);
    const auto* const* const tensor = std::get_if<PickleTensor*>(&item);
    require(tensor != nullptr, where, "holds no tensor under '{}': {}", *name, kExpected);
    const std::string where_in_file = where + ": " + std::string(*name);
    require(tensors.emplace(*name, storages.tensor_of(**tensor, where_in_file)).second, where,
            "'{}' occurs twice", *name);
  }
  return tensors;
}

Tensors read_zip(const std::filesystem::path& path, const Collect& collect) {
  constexpr std::string_view kPickle = "/data.pkl";
  const ZipFile archive(path, "PyTorch");
  std::string folder;
  for (const std::string& name : archive.names()) {
    if (!name.ends_with(kPickle)) continue;
    require(folder.empty(), archive.path(), "two members *{}", kPickle);
    folder = name.substr(0, name.size() - kPickle.size());
  }
  require(!folder.empty(), archive.path(), "no file of torch.save: no member *{}", kPickle);
  const auto member = [&](const std::string& name) {
    require(archive.contains(folder + name), archive.path(), "the member {} is missing", name);
    return archive.bytes(folder + name, archive.path() + ": " + name);
  };
  if (archive.contains(folder + "/byteorder")) {
    require(member("/byteorder") == "little", archive.path(), "big-endian numbers are not read");
  }
  const std::string bytes = member(std::string(kPickle));
  PickleMachine machine(bytes, archive.path());
  const PickleValue value = machine.run();
  const auto bytes_of = [&](const PickleStorage& storage) {
    return member("/data/" + std::string(storage.key));
  };
  return collect(value, Storages(bytes_of));
}

/// The bytes of an item of a dtype such as "<f4".
std::size_t item_bytes_of(const char* descr) {
  return static_cast<std::size_t>(descr[2] - '0');
}

/// Reads the pickles of the legacy form from the left.
class LegacyReader {
 public:
  LegacyReader(std::string_view bytes, std::string where) : rest_(bytes), where_(std::move(where)) {
    rest_.remove_prefix(kLegacyStart.size());
  }

  /// The version, facts of the machine, the value, the keys of the storages, and for each key the
  /// number of its items and the items.
  Tensors read(const Collect& collect) {
    next(version_);
    check_byte_order(next(machine_));
    const PickleValue value = next(contents_);
    find_storages(next(keys_));
    const auto bytes_of = [&](const PickleStorage& storage) {
      const auto place = storages_.find(storage.key);
      require(place != storages_.end(), where_, "the numbers of a tensor are missing");
      return std::string(place->second);
    };
    return collect(value, Storages(bytes_of));
  }

 private:
  PickleValue next(std::optional<PickleMachine>& machine) {
    machine.emplace(rest_, where_);
    const PickleValue value = machine->run_first();
    rest_.remove_prefix(machine->end());
    return value;
  }

  void check_byte_order(const PickleValue& facts) const {
    const auto* const* const dict = std::get_if<PickleDict*>(&facts);
    require(dict != nullptr, where_, "expected a dict of facts about the machine");
    for (const auto& [key, value] : (*dict)->items) {
      require(key != PickleValue(std::string_view("little_endian")) || value == PickleValue(true),
              where_, "big-endian numbers are not read");
    }
  }

  void find_storages(const PickleValue& keys) {
    const auto* const* const list = std::get_if<PickleList*>(&keys);
    require(list != nullptr, where_, "expected a list of the keys of storages");
    for (const PickleValue& key : (*list)->items) {
      const auto* const text = std::get_if<std::string_view>(&key);
      require(text != nullptr, where_, "the key of a storage is no text");
      const PickleStorage* const storage = contents_->storage(*text);
      require(storage != nullptr, where_, "no tensor uses the storage '{}'", *text);
      const std::uint64_t count = take_count(),
                          item_bytes = item_bytes_of(type_of(*storage, where_).descr);
      require(count <= rest_.size() / item_bytes, where_,
              "truncated: a storage of {} numbers, {} bytes are left", count, rest_.size());
      storages_[*text] = rest_.substr(0, count * item_bytes);
      rest_.remove_prefix(count * item_bytes);
    }
    require(rest_.empty(), where_, "{} bytes after the last storage", rest_.size());
  }

  std::uint64_t take_count() {
    constexpr std::size_t kBytes = 8;
    require(rest_.size() >= kBytes, where_, "truncated: a storage without its size");
    std::uint64_t count = 0;
    for (std::size_t i = kBytes; i-- > 0;) {
      count = count << 8 | static_cast<unsigned char>(rest_[i]);
    }
    rest_.remove_prefix(kBytes);
    return count;
  }

  std::string_view rest_;
  std::string where_;
  // Each owns the values of its pickle.
  std::optional<PickleMachine> version_, machine_, contents_, keys_;
  std::map<std::string_view, std::string_view> storages_;
};

Tensors read_with(const std::filesystem::path& path, const Collect& collect) {
  regular_file_bytes(path);
  std::string start(kLegacyStart.size(), '\0');
  std::ifstream(path, std::ios::binary).read(start.data(), std::streamsize(start.size()));
  if (start == kLegacyStart) return LegacyReader(read_file(path), path.string()).read(collect);
  require(start.starts_with("PK"), path.string(),
          "no file of torch.save: expected a zip file or the form before PyTorch 1.6");
  return read_zip(path, collect);
}

}  // namespace

std::map<std::string, at::Tensor> read_torch_file(const std::filesystem::path& path) {
  return read_with(path, [&](const PickleValue& value, Storages storages) {
    Collector collector(path.string(), std::move(storages));
    collector.add(value, "");
    return collector.finish();
  });
}

std::map<std::string, at::Tensor> read_state_dict(const std::filesystem::path& path) {
  return read_with(path, [&](const PickleValue& value, Storages storages) {
    return collect_state(value, std::move(storages), path.string());
  });
}

}  // namespace mezzo::data
