#pragma once

#include "support/npy_writer.h"

/// Opcodes of pickle protocol 2, as text to concatenate.
namespace mezzo::test::pickle {

inline std::string number(std::int32_t value) {
  std::string bytes = "J";
  append_number(bytes, static_cast<std::uint32_t>(value), 4);
  return bytes;
}

inline std::string text(std::string_view value) {
  std::string bytes = "T";
  append_number(bytes, value.size(), 4);
  return bytes.append(value);
}

inline std::string name(const std::string& module, const std::string& member) {
  return "c" + module + "\n" + member + "\n";
}

inline std::string tuple(const std::vector<std::string>& items) {
  std::string bytes = "(";
  for (const std::string& item : items) bytes += item;
  return bytes + "t";
}

inline std::string numbers_tuple(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const std::int64_t value : values) items.push_back(number(static_cast<std::int32_t>(value)));
  return tuple(items);
}

/// A complete pickle of `value`.
inline std::string file(const std::string& value) {
  return "\x80\x02" + value + ".";
}

inline std::string dtype(const std::string& code, const std::string& order = "<") {
  return name("numpy", "dtype") + tuple({text(code), number(0), number(1)}) + "R" +
         tuple({number(3), text(order), "N", "N", "N", number(-1), number(-1), number(0)}) + "b";
}

inline std::string empty_array() {
  return name("numpy.core.multiarray", "_reconstruct") +
         tuple({name("numpy", "ndarray"), tuple({number(0)}), text("b")}) + "R";
}

inline std::string array(const std::string& type, const std::vector<std::int64_t>& shape,
                         std::string_view items) {
  return empty_array() + tuple({number(1), numbers_tuple(shape), type, "\x89", text(items)}) + "b";
}

inline std::string int32_array(const std::vector<std::int64_t>& shape,
                               const std::vector<std::int32_t>& items) {
  return array(dtype("i4"), shape, raw_bytes(items));
}

inline std::string int64_array(const std::vector<std::int64_t>& shape,
                               const std::vector<std::int64_t>& items) {
  return array(dtype("i8"), shape, raw_bytes(items));
}

/// A file of torch.save with this value.
inline std::string torch_zip(const std::string& value) {
  return zip_bytes({{"archive/data.pkl", file(value)}, {"archive/byteorder", "little"}});
}

inline std::string float32_array(const std::vector<float>& items) {
  return array(dtype("f4"), {static_cast<std::int64_t>(items.size())}, raw_bytes(items));
}

/// {key: value, ...}, all of them opcodes.
inline std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string bytes = "}(";
  for (const auto& [key, value] : items) bytes += key + value;
  return bytes + "u";
}

struct Csr {
  std::int64_t rows, cols;
  std::vector<std::int32_t> indptr, indices;
  std::vector<float> data;
};

inline std::string csr_with(const std::string& state) {
  return name("scipy.sparse.csr", "csr_matrix") + ")\x81" + state + "b";
}

inline std::string csr(const Csr& matrix) {
  const auto part = [](const std::vector<std::int32_t>& items) {
    return int32_array({static_cast<std::int64_t>(items.size())}, items);
  };
  return csr_with(dict({{text("format"), text("csr")},
                        {text("_shape"), numbers_tuple({matrix.rows, matrix.cols})},
                        {text("indptr"), part(matrix.indptr)},
                        {text("indices"), part(matrix.indices)},
                        {text("data"), float32_array(matrix.data)}}));
}

/// defaultdict(list) of node -> neighbours: row i of `lists` is node i.
inline std::string graph(const std::vector<std::vector<std::int32_t>>& lists) {
  std::string bytes =
      name("collections", "defaultdict") + tuple({name("__builtin__", "list")}) + "R(";
  for (std::size_t i = 0; i < lists.size(); ++i) {
    bytes += number(static_cast<std::int32_t>(i)) + "](";
    for (const std::int32_t item : lists[i]) bytes += number(item);
    bytes += "e";
  }
  return bytes + "u";
}

}  // namespace mezzo::test::pickle
