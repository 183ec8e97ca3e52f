#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::data {

/// The physical memory in bytes, free or not.
std::uint64_t memory_of_the_machine();

/// A memory-mapped regular file: read-only, shared, read from disk page by page on access. A write
/// ends the process. So does a read beyond the end of a file that was truncated later. Costs
/// address space only.
class MEZZO_API MappedFile {
 public:
  /// Throws IoError if the file does not exist or the address space is exhausted.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

  /// Announces random reads to the system. A file larger than half of the memory is then read
  /// without read-ahead; smaller files profit from it.
  void advise_random_reads() const;

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The dtype as numpy writes it: "<f4". bool, uint8, int32, int64, float32, float16, and bfloat16,
/// which numpy lacks, as its bits "<u2". Throws LogicError for others.
MEZZO_API std::string_view npy_descr(at::ScalarType dtype);

/// The items of a .npy file, which must be of `dtype` (one of npy_descr; bfloat16 also as "|V2")
/// and in C order, as a view of the mapped file; it stays mapped while a tensor uses it. Reads only
/// the header. Throws IoError for a damaged header, another dtype or order, and a file size that
/// does not match the shape.
MEZZO_API at::Tensor map_npy(const std::filesystem::path& path, at::ScalarType dtype,
                             bool random_reads = false);

}  // namespace mezzo::data
