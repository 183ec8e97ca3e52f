#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo::data {

/// In bytes, whatever of it is free.
std::uint64_t memory_of_the_machine();

/// A regular file as memory: read-only, shared with all who map it, read from the disk page by page
/// when touched. Writing to it ends the process, as does reading what someone has cut off the file
/// since. Costs address space only.
class MEZZO_API MappedFile {
 public:
  /// Throws IoError where there is no such file, or no address space left for it.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

  /// Tells the system that places will be read at random. Of a file that does not fit half of the
  /// memory, only what is touched is read from then on, not its surroundings too; smaller ones are
  /// better off with them.
  void advise_random_reads() const;

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The dtype as numpy writes it: "<f4". bool, uint8, int32, int64, float32, float16, and bfloat16,
/// which numpy lacks: its bits as "<u2". Throws LogicError for others.
MEZZO_API std::string_view npy_descr(at::ScalarType dtype);

/// The items of a .npy file, which must be of `dtype` (one of npy_descr; bfloat16 also as "|V2")
/// and in C order, as a view of the mapped file; it stays mapped while a tensor uses it. Reads
/// nothing but the header. Throws IoError for a damaged header, another dtype or order, and a file
/// that is shorter or longer than the shape asks for.
MEZZO_API at::Tensor map_npy(const std::filesystem::path& path, at::ScalarType dtype,
                             bool random_reads = false);

}  // namespace mezzo::data
