#include "mezzo/data/pickle/pickle.h"

#include <set>

#include "mezzo/data/npy/npy.h"
#include "mezzo/data/pickle/pickle_machine.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::size_t kMaxMatrixAttributes = 64;  // scipy sets seven

/// The bytes of each character; checked: hostile files have others.
std::string bytes_of_latin1(std::string_view text, const std::string& where) {
  constexpr unsigned char kAscii = 0x80, kTail = 0xC0;  // two bytes: 110000xy 10zzzzzz
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    if (first < kAscii) {
      bytes += text[i];
      continue;
    }
    const bool pair = (first == kTail + 2 || first == kTail + 3) && i + 1 < text.size() &&
                      (static_cast<unsigned char>(text[i + 1]) & kTail) == kAscii;
    require(pair, where, "the bytes of an array are not Latin-1 text");
    bytes += static_cast<char>((first & 3) << 6 | (static_cast<unsigned char>(text[++i]) & ~kTail));
  }
  return bytes;
}

const PickleValue& attribute(const PickleDict& attributes, std::string_view name,
                             const std::string& where) {
  const PickleValue* attribute = nullptr;
  for (const auto& [key, value] : attributes.items) {
    if (key == PickleValue(name)) attribute = &value;
  }
  require(attribute != nullptr, where, "the matrix has no attribute '{}'", name);
  return *attribute;
}

}  // namespace

at::Tensor array_of(const PickleValue& value, const std::string& where) {
  const auto* const* const array = std::get_if<PickleArray*>(&value);
  require(array != nullptr && (*array)->built, where, "expected a numpy array");
  const PickleArray& contents = **array;
  std::string decoded;
  if (contents.is_latin1) decoded = bytes_of_latin1(contents.bytes, where);
  return tensor_from_bytes(std::string(contents.dtype->order) + std::string(contents.dtype->code),
                           contents.shape,
                           contents.fortran_order ? ArrayOrder::kFortran : ArrayOrder::kC,
                           contents.is_latin1 ? std::string_view(decoded) : contents.bytes, where);
}

at::Tensor unpickle_array(std::string_view bytes, const std::string& where) {
  PickleMachine machine(bytes, where);
  return array_of(machine.run(), where);
}

at::Tensor unpickle_csr(std::string_view bytes, const std::string& where) {
  PickleMachine machine(bytes, where);
  const PickleValue value = machine.run();
  const auto* const* const matrix = std::get_if<PickleCsr*>(&value);
  require(matrix != nullptr && (*matrix)->attributes != nullptr, where,
          "expected a scipy CSR matrix");
  const PickleDict& attributes = *(*matrix)->attributes;
  require(attributes.items.size() <= kMaxMatrixAttributes, where,
          "a matrix with {} attributes, expected at most {}", attributes.items.size(),
          kMaxMatrixAttributes);
  const PickleValue& shape = attribute(attributes, "_shape", where);
  const auto* const* const sizes = std::get_if<PickleTuple*>(&shape);
  require(sizes != nullptr && (*sizes)->items.size() == 2 &&
              std::holds_alternative<std::int64_t>((*sizes)->items[0]) &&
              std::holds_alternative<std::int64_t>((*sizes)->items[1]),
          where, "the matrix's shape is not a pair of integers");
  const auto part = [&](std::string_view name) {
    return array_of(attribute(attributes, name, where), where + ": " + std::string(name));
  };
  return make_csr(std::get<std::int64_t>((*sizes)->items[0]),
                  std::get<std::int64_t>((*sizes)->items[1]), part("indptr"), part("indices"),
                  part("data"), where);
}

PickledGraph unpickle_graph(std::string_view bytes, const std::string& where) {
  PickleMachine machine(bytes, where);
  const PickleValue value = machine.run();
  const auto* const* const dict = std::get_if<PickleDict*>(&value);
  require(dict != nullptr, where, "expected a dict of lists");
  PickledGraph graph;
  graph.num_nodes = static_cast<std::int64_t>((*dict)->items.size());
  std::set<std::int64_t> nodes;
  for (const auto& [key, neighbours] : (*dict)->items) {
    const auto* const node = std::get_if<std::int64_t>(&key);
    const auto* const* const list = std::get_if<PickleList*>(&neighbours);
    require(node != nullptr && list != nullptr, where, "expected integers as keys, lists as items");
    require(nodes.insert(*node).second, where, "node {} occurs twice", *node);
    // Many keys may share one list; a valid file has at least a byte for each neighbour.
    require((*list)->items.size() + graph.edges.size() <= bytes.size(), where,
            "more neighbours than the file has bytes");
    for (const PickleValue& item : (*list)->items) {
      const auto* const neighbour = std::get_if<std::int64_t>(&item);
      require(neighbour != nullptr, where, "a neighbour of node {} is not an integer", *node);
      graph.edges.emplace_back(*node, *neighbour);
    }
  }
  return graph;
}

}  // namespace mezzo::data
