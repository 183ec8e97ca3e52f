// The objects that a pickle may build.
#include "mezzo/core/error.h"
#include "mezzo/data/pickle/pickle_machine.h"

namespace mezzo::data {
namespace {

struct KnownName {
  std::string_view module, name;
  PickleName value;
};

constexpr KnownName kKnownNames[] = {
    {"scipy.sparse.csr", "csr_matrix", PickleName::kCsrMatrix},
    {"numpy.core.multiarray", "_reconstruct", PickleName::kReconstruct},
    {"numpy._core.multiarray", "_reconstruct", PickleName::kReconstruct},
    {"numpy", "ndarray", PickleName::kNdarray},
    {"numpy", "dtype", PickleName::kDtype},
    {"collections", "defaultdict", PickleName::kDefaultdict},
    {"collections", "OrderedDict", PickleName::kOrderedDict},
    {"__builtin__", "list", PickleName::kList},
    {"__builtin__", "bytes", PickleName::kBytes},
    {"_codecs", "encode", PickleName::kEncode},
    {"torch._utils", "_rebuild_tensor_v2", PickleName::kRebuildTensor},
    {"torch.jit._pickle", "restore_type_tag", PickleName::kRestoreType},
    {"torch", "BoolStorage", PickleName::kBoolStorage},
    {"torch", "ByteStorage", PickleName::kByteStorage},
    {"torch", "CharStorage", PickleName::kCharStorage},
    {"torch", "ShortStorage", PickleName::kShortStorage},
    {"torch", "IntStorage", PickleName::kIntStorage},
    {"torch", "LongStorage", PickleName::kLongStorage},
    {"torch", "HalfStorage", PickleName::kHalfStorage},
    {"torch", "BFloat16Storage", PickleName::kBFloat16Storage},
    {"torch", "FloatStorage", PickleName::kFloatStorage},
    {"torch", "DoubleStorage", PickleName::kDoubleStorage},
};

constexpr std::size_t kMaxArrayDimensions = 32;

/// For messages: a name from the file, shortened and without control characters.
std::string printable(std::string_view text) {
  std::string out(text.substr(0, 80));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

}  // namespace

void PickleMachine::push_name() {
  const std::string_view module = take_line();
  const std::string_view name = take_line();
  for (const KnownName& known : kKnownNames) {
    if (known.module == module && known.name == name) return push(known.value);
  }
  fault(fmt::format("the name '{}.{}' is refused: it could run programs", printable(module),
                    printable(name)));
}

void PickleMachine::new_object() {
  const auto* const arguments = expect<PickleTuple*>(pop(), "a tuple of arguments");
  const auto type = expect<PickleName>(pop(), "a class");
  if (type != PickleName::kCsrMatrix || !arguments->items.empty()) {
    fault("expected an empty scipy CSR matrix");
  }
  push(&matrices_.emplace_back());
}

void PickleMachine::reduce() {
  const auto& arguments = expect<PickleTuple*>(pop(), "a tuple of arguments")->items;
  const auto function = expect<PickleName>(pop(), "a function");
  const auto is_name = [&](std::size_t i, PickleName name) {
    return i < arguments.size() && arguments[i] == PickleValue(name);
  };
  if (function == PickleName::kReconstruct && is_name(0, PickleName::kNdarray)) {
    push(&arrays_.emplace_back());
  } else if (function == PickleName::kDtype && !arguments.empty()) {
    const auto code = expect<std::string_view>(arguments[0], "a dtype code such as 'f4'");
    push(&dtypes_.emplace_back(PickleDtype{.code = code}));
  } else if (function == PickleName::kDefaultdict && arguments.size() == 1 &&
             is_name(0, PickleName::kList)) {
    push(&dicts_.emplace_back());
  } else if (function == PickleName::kOrderedDict && arguments.empty()) {
    push(&dicts_.emplace_back());
  } else if (function == PickleName::kEncode && arguments.size() == 2 &&
             arguments[1] == PickleValue(std::string_view("latin1"))) {
    push(PickleLatin1{expect<std::string_view>(arguments[0], "text")});
  } else if (function == PickleName::kBytes && arguments.empty()) {
    push(std::string_view());
  } else if (function == PickleName::kRebuildTensor) {
    push_tensor(arguments);
  } else if (function == PickleName::kRestoreType && arguments.size() == 2) {
    push(arguments[0]);  // a container, and its type in C++
  } else {
    fault("a call that is neither of an array, a tensor, a dtype, bytes nor a dict");
  }
}

void PickleMachine::push_storage() {
  constexpr std::size_t kFewestParts = 5;
  const auto& parts = expect<PickleTuple*>(pop(), "a tuple, the name of a storage")->items;
  if (parts.size() < kFewestParts || parts[0] != PickleValue(std::string_view("storage"))) {
    fault("expected the type, key, place and size of a storage");
  }
  PickleStorage& storage = storages_.emplace_back(
      PickleStorage{.type = expect<PickleName>(parts[1], "the type of a storage"),
                    .key = expect<std::string_view>(parts[2], "the key of a storage"),
                    .numel = expect<std::int64_t>(parts[4], "the size of a storage")});
  first_storages_.emplace(storage.key, &storage);
  push(&storage);
}

const PickleStorage* PickleMachine::storage(std::string_view key) const {
  const auto match = first_storages_.find(key);
  return match == first_storages_.end() ? nullptr : match->second;
}

void PickleMachine::push_tensor(const std::vector<PickleValue>& arguments) {
  if (arguments.size() < 4) fault("a tensor without a storage, an offset, sizes and strides");
  push(&tensors_.emplace_back(
      PickleTensor{.storage = expect<PickleStorage*>(arguments[0], "the storage of a tensor"),
                   .offset = expect<std::int64_t>(arguments[1], "an offset"),
                   .sizes = integers_of(arguments[2], "the sizes of a tensor"),
                   .strides = integers_of(arguments[3], "the strides of a tensor")}));
}

std::vector<std::int64_t> PickleMachine::integers_of(const PickleValue& value,
                                                     const char* what) const {
  const auto& items = expect<PickleTuple*>(value, what)->items;
  if (items.size() > kMaxArrayDimensions) {
    fault(fmt::format("more than {} dimensions", kMaxArrayDimensions));
  }
  std::vector<std::int64_t> integers;
  for (const PickleValue& item : items) integers.push_back(expect<std::int64_t>(item, what));
  return integers;
}

void PickleMachine::build() {
  const PickleValue state = pop();
  const PickleValue target = top();
  if (auto* const* dtype = std::get_if<PickleDtype*>(&target)) {
    build_dtype(**dtype, state);
  } else if (auto* const* array = std::get_if<PickleArray*>(&target)) {
    build_array(**array, state);
  } else if (auto* const* matrix = std::get_if<PickleCsr*>(&target)) {
    if ((*matrix)->attributes != nullptr) fault("a matrix is built twice");
    (*matrix)->attributes = expect<PickleDict*>(state, "a dict of attributes");
  } else if (std::holds_alternative<PickleDict*>(target)) {
    // The attribute _metadata of a state dict, which has the versions of the modules.
    expect<PickleDict*>(state, "a dict of attributes");
  } else {
    fault("a state for an object that has no state");
  }
}

void PickleMachine::build_dtype(PickleDtype& dtype, const PickleValue& state) {
  const auto& items = expect<PickleTuple*>(state, "a tuple, the state of a dtype")->items;
  if (items.size() < 2) fault("the state of a dtype is too short");
  dtype.order = expect<std::string_view>(items[1], "a byte order");
  if (dtype.order.size() != 1) fault("a byte order of other than one character");
}

void PickleMachine::build_array(PickleArray& array, const PickleValue& state) {
  const auto& items = expect<PickleTuple*>(state, "a tuple, the state of an array")->items;
  if (array.built) fault("an array is built twice");
  if (items.size() != 5) fault("the state of an array has other than 5 parts");
  array.shape = integers_of(items[1], "the shape of an array");
  array.dtype = expect<PickleDtype*>(items[2], "a dtype");
  array.fortran_order = std::holds_alternative<bool>(items[3])
                            ? std::get<bool>(items[3])
                            : expect<std::int64_t>(items[3], "the order of an array") != 0;
  const auto* const latin1 = std::get_if<PickleLatin1>(&items[4]);
  array.is_latin1 = latin1 != nullptr;
  array.bytes = array.is_latin1 ? latin1->text
                                : expect<std::string_view>(
                                      items[4], "the bytes of an array (objects are refused)");
  array.built = true;
}

}  // namespace mezzo::data
