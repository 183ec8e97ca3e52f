#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::data {

/// The memory order of an array.
enum class ArrayOrder : std::uint8_t { kC, kFortran };

/// The numbers of an array described as in numpy. descr: byte order, kind and item size, such as
/// "<f4"; reads b1, i1 i2 i4 i8, u1 u2 u4 u8, f2 f4 f8, little-endian. Unsigned items of 16, 32 and
/// 64 bits become int32, int64 and int64. bytes: exactly the items. The result is contiguous, on
/// the CPU, and owns its memory. `where` is the prefix of each error. Throws IoError for other
/// dtypes, shapes that overflow or do not fit the bytes, booleans other than 0 and 1, and u8 items
/// above the int64 range. Allocates no more than four times the bytes.
MEZZO_API at::Tensor tensor_from_bytes(const std::string& descr,
                                       const std::vector<std::int64_t>& shape, ArrayOrder order,
                                       std::string_view bytes, const std::string& where);

/// The numbers of a .npy file of version 1, 2 or 3 whose contents are `bytes`; see
/// tensor_from_bytes. Throws IoError for a damaged header, missing or extra bytes, and arrays of
/// text, records or Python objects.
MEZZO_API at::Tensor parse_npy(std::string_view bytes, const std::string& where);

/// The text items (UTF-8) of a .npy file of dtype U or S, in C order, whatever its shape. Throws
/// IoError as parse_npy does, and for items that are not Unicode.
MEZZO_API std::vector<std::string> parse_npy_text(std::string_view bytes, const std::string& where);

/// The header of a .npy file.
struct NpyHeader {
  std::string descr;  ///< dtype as numpy writes it, "<f4"
  ArrayOrder order = ArrayOrder::kC;
  std::vector<std::int64_t> shape;
  std::size_t data_begin = 0;  ///< offset of the items in bytes from the start of the file
};

/// The number of bytes of a .npy file that contain the length of its header.
inline constexpr std::size_t kNpyStartBytes = 12;

/// The length of the header of a .npy file that begins with `bytes`. Throws IoError for other
/// files.
std::size_t npy_header_bytes(std::string_view bytes, const std::string& where);

/// The header of the .npy file that begins with `bytes`, which need not include the items. Throws
/// IoError for a damaged header.
MEZZO_API NpyHeader parse_npy_header(std::string_view bytes, const std::string& where);

/// The number of items of an array of this shape. Throws IoError unless they need exactly `bytes`.
std::int64_t count_items(const std::vector<std::int64_t>& shape, std::int64_t item_bytes,
                         std::uint64_t bytes, const std::string& where);

/// Whether the .npy file holds Python objects (dtype O), which are never read.
/// Throws IoError for a damaged header.
MEZZO_API bool npy_holds_objects(std::string_view bytes, const std::string& where);

}  // namespace mezzo::data
