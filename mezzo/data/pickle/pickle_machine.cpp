#include "mezzo/data/pickle/pickle_machine.h"

#include <bit>

#include "mezzo/core/error.h"

namespace mezzo::data {
namespace {

enum Opcode : unsigned char {
  kMark = '(',
  kStop = '.',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinFloat = 'G',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kBinPersId = 'Q',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyList = ']',
  kEmptyDict = '}',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
};

}  // namespace

PickleMachine::PickleMachine(std::string_view bytes, std::string where)
    : bytes_(bytes), where_(std::move(where)) {}

void PickleMachine::fault(const std::string& what) const {
  detail::raise<IoError>("{}: pickle, byte {}: {}", where_, opcode_position_, what);
}

PickleValue PickleMachine::run() {
  const PickleValue value = run_first();
  if (position_ != bytes_.size()) {
    fault(fmt::format("{} bytes after its end", bytes_.size() - position_));
  }
  return value;
}

PickleValue PickleMachine::run_first() {
  while (true) {
    opcode_position_ = position_;
    const auto opcode = static_cast<unsigned char>(take(1)[0]);
    if (opcode == kStop) break;
    if (opcode == kProto) {
      if (opcode_position_ != 0) fault("a protocol mark that is not at the start");
      const std::uint64_t protocol = take_unsigned(1);
      if (protocol > 2) fault(fmt::format("protocol {}, expected at most 2", protocol));
    } else if (!run_literal(opcode) && !run_container(opcode) && !run_memo(opcode) &&
               !run_object(opcode)) {
      fault(
          fmt::format("opcode {:#04x} is refused (only numbers, strings, containers, arrays and "
                      "CSR matrices are read)",
                      opcode));
    }
  }
  if (stack_.size() != 1 || !marks_.empty()) {
    fault(fmt::format("ends with {} values and {} marks on the stack, expected one value",
                      stack_.size(), marks_.size()));
  }
  return stack_.back();
}

std::string_view PickleMachine::take(std::uint64_t count) {
  const std::size_t left = bytes_.size() - position_;
  if (count > left) fault(fmt::format("truncated: needs {} more bytes, {} are left", count, left));
  position_ += count;
  return bytes_.substr(position_ - count, count);
}

std::uint64_t PickleMachine::take_unsigned(std::size_t num_bytes) {
  const std::string_view digits = take(num_bytes);
  std::uint64_t value = 0;
  for (std::size_t i = num_bytes; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(digits[i]);
  }
  return value;
}

std::int64_t PickleMachine::take_signed(std::size_t num_bytes) {
  if (num_bytes == 0) return 0;
  const auto unused_bits = static_cast<int>(64 - 8 * num_bytes);
  return static_cast<std::int64_t>(take_unsigned(num_bytes) << unused_bits) >> unused_bits;
}

std::string_view PickleMachine::take_line() {
  const std::size_t end = bytes_.find('\n', position_);
  if (end == std::string_view::npos) fault("truncated: a name without an end");
  const std::string_view line = bytes_.substr(position_, end - position_);
  position_ = end + 1;
  return line;
}

PickleValue PickleMachine::pop() {
  const PickleValue value = top();
  stack_.pop_back();
  return value;
}

PickleValue& PickleMachine::top() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fault("the stack is too short");
  return stack_.back();
}

std::vector<PickleValue> PickleMachine::pop_to_mark() {
  if (marks_.empty()) fault("no mark on the stack");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  marks_.pop_back();
  std::vector<PickleValue> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  return items;
}

bool PickleMachine::run_literal(unsigned char opcode) {
  switch (opcode) {
    case kNone:
      push(std::monostate{});
      return true;
    case kNewTrue:
    case kNewFalse:
      push(opcode == kNewTrue);
      return true;
    case kBinInt:
      push(take_signed(4));
      return true;
    case kBinInt1:
      push(static_cast<std::int64_t>(take_unsigned(1)));
      return true;
    case kBinInt2:
      push(static_cast<std::int64_t>(take_unsigned(2)));
      return true;
    case kLong1: {
      const std::uint64_t size = take_unsigned(1);
      if (size > 8) fault("an integer of more than 64 bits");
      push(take_signed(size));
      return true;
    }
    case kBinFloat:
      push(std::bit_cast<double>(__builtin_bswap64(take_unsigned(8))));
      return true;
    case kShortBinString:
      push(take(take_unsigned(1)));
      return true;
    case kBinString:
    case kBinUnicode: {
      const std::int64_t size =
          opcode == kBinString ? take_signed(4) : static_cast<std::int64_t>(take_unsigned(4));
      if (size < 0) fault("a string of negative length");
      push(take(static_cast<std::uint64_t>(size)));
      return true;
    }
    default:
      return false;
  }
}

void PickleMachine::push_tuple(std::vector<PickleValue> items) {
  push(&tuples_.emplace_back(PickleTuple{std::move(items)}));
}

void PickleMachine::push_last(std::size_t count) {
  std::vector<PickleValue> items(count);
  for (std::size_t i = count; i-- > 0;) items[i] = pop();
  push_tuple(std::move(items));
}

bool PickleMachine::run_container(unsigned char opcode) {
  switch (opcode) {
    case kMark:
      marks_.push_back(stack_.size());
      return true;
    case kEmptyTuple:
      push_tuple({});
      return true;
    case kTuple1:
    case kTuple2:
    case kTuple3:
      push_last(static_cast<std::size_t>(opcode - kTuple1) + 1);
      return true;
    case kTuple:
      push_tuple(pop_to_mark());
      return true;
    case kEmptyList:
      push(&lists_.emplace_back());
      return true;
    case kEmptyDict:
      push(&dicts_.emplace_back());
      return true;
    case kAppend: {
      const PickleValue item = pop();
      expect<PickleList*>(top(), "a list to append to")->items.push_back(item);
      return true;
    }
    case kAppends: {
      const std::vector<PickleValue> items = pop_to_mark();
      auto& list = expect<PickleList*>(top(), "a list to append to")->items;
      list.insert(list.end(), items.begin(), items.end());
      return true;
    }
    case kSetItem: {
      const PickleValue value = pop();
      const PickleValue key = pop();
      set_items({key, value});
      return true;
    }
    case kSetItems:
      set_items(pop_to_mark());
      return true;
    default:
      return false;
  }
}

void PickleMachine::set_items(std::vector<PickleValue> items) {
  if (items.size() % 2 != 0) fault("a key without a value");
  auto& dict = expect<PickleDict*>(top(), "a dict to set items of")->items;
  for (std::size_t i = 0; i < items.size(); i += 2) dict.emplace_back(items[i], items[i + 1]);
}

bool PickleMachine::run_memo(unsigned char opcode) {
  switch (opcode) {
    case kBinPut:
      put(take_unsigned(1));
      return true;
    case kLongBinPut:
      put(take_unsigned(4));
      return true;
    case kBinGet:
      get(take_unsigned(1));
      return true;
    case kLongBinGet:
      get(take_unsigned(4));
      return true;
    default:
      return false;
  }
}

void PickleMachine::put(std::uint64_t key) {
  memo_[key] = top();
}

void PickleMachine::get(std::uint64_t key) {
  const auto entry = memo_.find(key);
  if (entry == memo_.end()) fault(fmt::format("memo entry {} was never set", key));
  push(entry->second);
}

bool PickleMachine::run_object(unsigned char opcode) {
  switch (opcode) {
    case kGlobal:
      push_name();
      return true;
    case kNewObj:
      new_object();
      return true;
    case kReduce:
      reduce();
      return true;
    case kBuild:
      build();
      return true;
    case kBinPersId:
      push_storage();
      return true;
    default:
      return false;
  }
}

}  // namespace mezzo::data
