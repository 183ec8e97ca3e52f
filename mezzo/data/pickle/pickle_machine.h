#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

namespace mezzo::data {

/// The names that a pickle may use.
enum class PickleName : std::uint8_t {
  kCsrMatrix,
  kReconstruct,
  kNdarray,
  kDtype,
  kDefaultdict,
  kOrderedDict,
  kList,
  kBytes,
  kEncode,
  kRebuildTensor,
  kRestoreType,
  kBoolStorage,
  kByteStorage,
  kCharStorage,
  kShortStorage,
  kIntStorage,
  kLongStorage,
  kHalfStorage,
  kBFloat16Storage,
  kFloatStorage,
  kDoubleStorage,
};

struct PickleTuple;
struct PickleList;
struct PickleDict;
struct PickleDtype;
struct PickleArray;
struct PickleCsr;
struct PickleStorage;
struct PickleTensor;

/// Bytes that Python 3 wrote as text: each byte is a character up to U+00FF, in UTF-8.
struct PickleLatin1 {
  std::string_view text;
  bool operator==(const PickleLatin1&) const = default;
};

/// What a pickle can build. Strings are views of the pickle; the machine owns the containers, so
/// cycles do not leak and deep nesting needs no recursion in destructors.
using PickleValue =
    std::variant<std::monostate, bool, std::int64_t, double, std::string_view, PickleLatin1,
                 PickleName, PickleTuple*, PickleList*, PickleDict*, PickleDtype*, PickleArray*,
                 PickleCsr*, PickleStorage*, PickleTensor*>;

struct PickleTuple {
  std::vector<PickleValue> items;
};

struct PickleList {
  std::vector<PickleValue> items;
};

struct PickleDict {
  std::vector<std::pair<PickleValue, PickleValue>> items;  // in order of insertion, keys may repeat
};

struct PickleDtype {
  std::string_view code;         // "i4"
  std::string_view order = "<";  // after BUILD: "<", ">" or "|"
};

/// An array: its shape, dtype and bytes, checked on conversion to a tensor.
struct PickleArray {
  bool built = false;
  std::vector<std::int64_t> shape;
  const PickleDtype* dtype = nullptr;
  bool fortran_order = false;
  std::string_view bytes;
  bool is_latin1 = false;  // of `bytes`: see PickleLatin1
};

/// A scipy CSR matrix: the attributes that were set, not checked.
struct PickleCsr {
  PickleDict* attributes = nullptr;
};

/// The numbers of tensors, which a torch file keeps outside of its pickle.
struct PickleStorage {
  PickleName type = PickleName::kLongStorage;
  std::string_view key;
  std::int64_t numel = 0;
};

/// A view of a storage, not checked.
struct PickleTensor {
  const PickleStorage* storage = nullptr;
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes, strides;
};

/// Runs the opcodes of a pickle over a stack, and owns the values they build. `bytes` must outlive
/// it.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, std::string where);

  /// The value that the pickle describes, valid as long as the machine. Throws IoError for unknown
  /// opcodes and names, too short a stack or file, memo entries that were never set, and bytes
  /// after the end.
  PickleValue run();
  /// run() for a pickle that other bytes follow, from end() on.
  PickleValue run_first();
  std::size_t end() const { return position_; }
  /// The first storage with a key; nullptr if there is none.
  const PickleStorage* storage(std::string_view key) const;

 private:
  [[noreturn]] void fault(const std::string& what) const;

  // reading operands
  std::string_view take(std::uint64_t count);
  std::uint64_t take_unsigned(std::size_t num_bytes);
  std::int64_t take_signed(std::size_t num_bytes);
  std::string_view take_line();

  // the stack
  PickleValue pop();
  PickleValue& top();
  std::vector<PickleValue> pop_to_mark();
  template <class T>
  T expect(const PickleValue& value, const char* what) const {
    const T* const result = std::get_if<T>(&value);
    if (result == nullptr) fault(std::string("expected ") + what);
    return *result;
  }
  void push(PickleValue value) { stack_.push_back(value); }

  // groups of opcodes; false: not one of the group
  bool run_literal(unsigned char opcode);
  bool run_container(unsigned char opcode);
  bool run_memo(unsigned char opcode);
  bool run_object(unsigned char opcode);

  void push_tuple(std::vector<PickleValue> items);
  void push_last(std::size_t count);
  void put(std::uint64_t key);
  void get(std::uint64_t key);
  void set_items(std::vector<PickleValue> items);
  // objects
  void push_name();
  void new_object();
  void reduce();
  void push_storage();
  void push_tensor(const std::vector<PickleValue>& arguments);
  std::vector<std::int64_t> integers_of(const PickleValue& value, const char* what) const;
  void build();
  void build_dtype(PickleDtype& dtype, const PickleValue& state);
  void build_array(PickleArray& array, const PickleValue& state);

  std::string_view bytes_;
  std::string where_;
  std::size_t position_ = 0;
  std::size_t opcode_position_ = 0;
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint64_t, PickleValue> memo_;  // a hash would let a file choose collisions
  std::deque<PickleTuple> tuples_;
  std::deque<PickleList> lists_;
  std::deque<PickleDict> dicts_;
  std::deque<PickleDtype> dtypes_;
  std::deque<PickleArray> arrays_;
  std::deque<PickleCsr> matrices_;
  std::deque<PickleStorage> storages_;
  std::map<std::string_view, const PickleStorage*> first_storages_;  // by key
  std::deque<PickleTensor> tensors_;
};

/// The array that a value is. Throws IoError for another value; see tensor_from_bytes.
at::Tensor array_of(const PickleValue& value, const std::string& where);

}  // namespace mezzo::data
