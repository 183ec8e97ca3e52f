#include "mezzo/data/npy/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::size_t kMaxDimensions = 32;  // numpy's own limit

/// Parses the Python dict literal of a header; supports only the literals that numpy writes.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NpyHeader parse() {
    NpyHeader header;
    std::optional<std::string> descr;
    std::optional<bool> fortran;
    std::optional<std::vector<std::int64_t>> shape;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !descr) {
        descr = string();
      } else if (key == "fortran_order" && !fortran) {
        fortran = boolean();
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        fault("unexpected or repeated key");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (position_ != text_.size()) fault("text after the closing brace");
    if (!descr || !fortran || !shape) fault("descr, fortran_order or shape is missing");
    header.descr = *descr;
    header.order = *fortran ? ArrayOrder::kFortran : ArrayOrder::kC;
    header.shape = *shape;
    return header;
  }

 private:
  [[noreturn]] void fault(std::string_view what) const {
    detail::raise<IoError>("{}: damaged npy header at its byte {}: {}", where_, position_, what);
  }

  void skip_blanks() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) {
      ++position_;
    }
  }

  bool accept(char expected) {
    skip_blanks();
    if (position_ >= text_.size() || text_[position_] != expected) return false;
    ++position_;
    return true;
  }

  void expect(char expected) {
    if (!accept(expected)) fault(fmt::format("expected '{}'", expected));
  }

  bool accept_word(std::string_view word) {
    skip_blanks();
    if (text_.substr(position_, word.size()) != word) return false;
    position_ += word.size();
    return true;
  }

  std::string string() {
    skip_blanks();
    const char quote = position_ < text_.size() ? text_[position_] : '\0';
    if (quote == '[') fault("records are not read");
    if (quote != '\'' && quote != '"') fault("expected a string");
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) fault("a string without an end");
    std::string value(text_.substr(position_ + 1, end - position_ - 1));
    position_ = end + 1;
    return value;
  }

  bool boolean() {
    if (accept_word("True")) return true;
    if (!accept_word("False")) fault("expected True or False");
    return false;
  }

  std::int64_t size() {
    skip_blanks();
    std::int64_t value = 0;
    const char* begin = text_.data() + position_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) fault("a dimension beyond the int64 range");
    if (error != std::errc{}) fault("expected a dimension");
    if (value < 0) fault("a negative dimension");
    position_ += static_cast<std::size_t>(end - begin);
    accept('L');  // long integers of Python 2
    return value;
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> sizes;
    expect('(');
    while (!accept(')')) {
      if (sizes.size() == kMaxDimensions) fault("more than 32 dimensions");
      sizes.push_back(size());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return sizes;
  }

  std::string_view text_;
  const std::string& where_;
  std::size_t position_ = 0;
};

/// The offset of the dict in a header. The length before it has 2 bytes in version 1, else 4.
std::size_t dict_begin(std::string_view bytes) {
  return bytes[6] == 1 ? 10 : 12;
}

/// Items of type From as a flat tensor of type To.
template <class From, class To>
at::Tensor copy_items(std::string_view bytes, std::int64_t count, const std::string& where) {
  at::Tensor out = at::empty({count}, c10::CppTypeToScalarType<To>::value);
  To* to = out.data_ptr<To>();
  if constexpr (std::is_same_v<From, To>) {
    if (count > 0) std::memcpy(to, bytes.data(), bytes.size());
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      From item;
      std::memcpy(&item, bytes.data() + static_cast<std::size_t>(i) * sizeof(From), sizeof(From));
      if constexpr (sizeof(From) == sizeof(To)) {
        require(item <= static_cast<From>(std::numeric_limits<To>::max()), where,
                "item {} is {}, beyond the int64 range", i, item);
      }
      to[i] = static_cast<To>(item);
    }
  }
  return out;
}

at::Tensor copy_booleans(std::string_view bytes, std::int64_t count, const std::string& where) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(),
                                [](char item) { return static_cast<unsigned char>(item) > 1; });
  require(bad == bytes.end(), where, "a boolean that is neither 0 nor 1, item {}",
          bad - bytes.begin());
  return copy_items<bool, bool>(bytes, count, where);
}

using CopyItems = at::Tensor (*)(std::string_view, std::int64_t, const std::string&);

struct ElementType {
  std::string_view code;  // kind and size, without the byte order
  CopyItems copy;
};

constexpr ElementType kElementTypes[] = {
    {"b1", &copy_booleans},
    {"i1", &copy_items<std::int8_t, std::int8_t>},
    {"i2", &copy_items<std::int16_t, std::int16_t>},
    {"i4", &copy_items<std::int32_t, std::int32_t>},
    {"i8", &copy_items<std::int64_t, std::int64_t>},
    {"u1", &copy_items<std::uint8_t, std::uint8_t>},
    {"u2", &copy_items<std::uint16_t, std::int32_t>},
    {"u4", &copy_items<std::uint32_t, std::int64_t>},
    {"u8", &copy_items<std::uint64_t, std::int64_t>},
    {"f2", &copy_items<at::Half, at::Half>},
    {"f4", &copy_items<float, float>},
    {"f8", &copy_items<double, double>},
};

void append_utf8(std::uint32_t code, std::string& text, const std::string& where) {
  require(code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF), where,
          "text with {:#x}, which is no Unicode character", code);
  const auto push = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | code >> 6);
    push(0x80 | (code & 0x3F));
  } else {
    if (code < 0x10000) {
      push(0xE0 | code >> 12);
    } else {
      push(0xF0 | code >> 18);
      push(0x80 | (code >> 12 & 0x3F));
    }
    push(0x80 | (code >> 6 & 0x3F));
    push(0x80 | (code & 0x3F));
  }
}

std::string text_item(std::string_view item, char kind, const std::string& where) {
  std::string text;
  const std::size_t width = kind == 'U' ? 4 : 1;
  for (std::size_t i = 0; i < item.size(); i += width) {
    std::uint32_t code = 0;
    std::memcpy(&code, item.data() + i, width);
    require(kind == 'U' || code < 0x80, where, "byte text that is not ASCII");
    append_utf8(code, text, where);
  }
  const std::size_t end = text.find_last_not_of('\0');
  text.resize(end == std::string::npos ? 0 : end + 1);
  return text;
}

}  // namespace

std::int64_t count_items(const std::vector<std::int64_t>& shape, std::int64_t item_bytes,
                         std::uint64_t bytes, const std::string& where) {
  require(shape.size() <= kMaxDimensions, where, "{} dimensions, expected at most 32",
          shape.size());
  std::int64_t span_bytes =
      item_bytes;  // skips dimensions of 0, which would hide an overflow of the others
  bool empty = false;
  for (const std::int64_t size : shape) {
    require(size >= 0, where, "a negative dimension: {}", size);
    require(!__builtin_mul_overflow(span_bytes, std::max<std::int64_t>(size, 1), &span_bytes),
            where, "the shape [{}] overflows", fmt::join(shape, ", "));
    empty = empty || size == 0;
  }
  const std::int64_t expected = empty ? 0 : span_bytes;
  require(static_cast<std::uint64_t>(expected) == bytes, where,
          "the shape [{}] needs {} bytes of data, got {}", fmt::join(shape, ", "), expected, bytes);
  return expected / item_bytes;
}

at::Tensor tensor_from_bytes(const std::string& descr, const std::vector<std::int64_t>& shape,
                             ArrayOrder order, std::string_view bytes, const std::string& where) {
  const std::string_view code = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  require(descr.substr(0, 1) != ">", where, "dtype '{}': big-endian data are not read", descr);
  require(code.substr(0, 1) != "O", where,
          "dtype '{}': Python objects are not read, they could run programs", descr);
  require(descr.find_first_of("<|=") == 0, where, "dtype '{}' is not known", descr);
  const auto* const type = std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                                        [&](const ElementType& t) { return t.code == code; });
  require(type != std::end(kElementTypes), where,
          "dtype '{}': expected booleans, integers or floats of up to 64 bits", descr);
  const std::int64_t count = count_items(shape, code[1] - '0', bytes.size(), where);
  const at::Tensor flat = type->copy(bytes, count, where);
  if (order == ArrayOrder::kC || shape.size() < 2) return flat.view(shape);
  std::vector<std::int64_t> reversed(shape.rbegin(), shape.rend());
  std::vector<std::int64_t> dimensions(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    dimensions[i] = static_cast<std::int64_t>(shape.size() - 1 - i);
  }
  return flat.view(reversed).permute(dimensions).contiguous();
}

at::Tensor parse_npy(std::string_view bytes, const std::string& where) {
  const NpyHeader header = parse_npy_header(bytes, where);
  return tensor_from_bytes(header.descr, header.shape, header.order,
                           bytes.substr(header.data_begin), where);
}

std::vector<std::string> parse_npy_text(std::string_view bytes, const std::string& where) {
  const NpyHeader header = parse_npy_header(bytes, where);
  const std::string_view data = bytes.substr(header.data_begin);
  const std::string& descr = header.descr;
  const char kind = descr.size() >= 3 ? descr[1] : '\0';
  require((kind == 'U' || kind == 'S') && (descr[0] == '<' || descr[0] == '|'), where,
          "dtype '{}', expected text ('<U...' or '|S...')", descr);
  std::int32_t characters = 0;
  const char* const end = descr.data() + descr.size();
  const auto [stop, error] = std::from_chars(descr.data() + 2, end, characters);
  // Items of zero bytes would match a header of any shape.
  require(error == std::errc{} && stop == end && characters >= 1, where,
          "dtype '{}' has no valid length", descr);
  const std::int64_t item_bytes = std::int64_t{characters} * (kind == 'U' ? 4 : 1);
  const std::int64_t count = count_items(header.shape, item_bytes, data.size(), where);
  require(header.order == ArrayOrder::kC || header.shape.size() < 2, where,
          "text in Fortran order is not read");
  std::vector<std::string> items;
  items.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto begin = static_cast<std::size_t>(i * item_bytes);
    const auto item = data.substr(begin, static_cast<std::size_t>(item_bytes));
    items.push_back(text_item(item, kind, where));
  }
  return items;
}

std::size_t npy_header_bytes(std::string_view bytes, const std::string& where) {
  require(bytes.substr(0, 6) == "\x93NUMPY", where, "not an npy file (no \\x93NUMPY at its start)");
  require(bytes.size() >= kNpyStartBytes, where, "truncated npy header: {} bytes", bytes.size());
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const int version = byte(6);
  require(version >= 1 && version <= 3 && byte(7) == 0, where,
          "npy version {}.{}, expected 1.0, 2.0 or 3.0", version, byte(7));
  const std::size_t start = dict_begin(bytes);
  std::size_t length = 0;
  for (std::size_t i = start; i-- > 8;) length = length * 256 + byte(i);
  return start + length;
}

NpyHeader parse_npy_header(std::string_view bytes, const std::string& where) {
  const std::size_t end = npy_header_bytes(bytes, where), start = dict_begin(bytes);
  require(end <= bytes.size(), where, "truncated npy header: it claims {} bytes, {} are left",
          end - start, bytes.size() - start);
  NpyHeader header = HeaderParser(bytes.substr(start, end - start), where).parse();
  header.data_begin = end;
  return header;
}

bool npy_holds_objects(std::string_view bytes, const std::string& where) {
  return parse_npy_header(bytes, where).descr.find('O') != std::string::npos;
}

}  // namespace mezzo::data
