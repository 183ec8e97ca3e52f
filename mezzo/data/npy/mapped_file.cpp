#include "mezzo/data/npy/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mezzo/data/npy/npy.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

struct NpyDtype {
  at::ScalarType dtype;
  std::string_view descr;
};

constexpr NpyDtype kMappedDtypes[] = {
    {at::kBool, "|b1"},  {at::kByte, "|u1"}, {at::kInt, "<i4"},     {at::kLong, "<i8"},
    {at::kFloat, "<f4"}, {at::kHalf, "<f2"}, {at::kBFloat16, "<u2"}};

/// numpy writes its extension types for bfloat16 as two raw bytes.
bool descr_is(std::string_view descr, at::ScalarType dtype) {
  return descr == npy_descr(dtype) ||
         (dtype == at::kBFloat16 && (descr == "|V2" || descr == "<V2"));
}

}  // namespace

std::uint64_t memory_of_the_machine() {
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe would block.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  require(file >= 0 || errno != ENOENT, path.string(), "no such file");
  require(file >= 0, path.string(), "cannot be opened for reading: {}", std::strerror(errno));
  struct stat status = {};
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  if (regular) size_ = static_cast<std::size_t>(status.st_size);
  void* const mapped = size_ > 0 ? ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0) : nullptr;
  const int failure = errno;
  ::close(file);
  require(regular, path.string(), "not a regular file");
  require(mapped != MAP_FAILED, path.string(), "its {} bytes cannot be mapped to memory: {}", size_,
          std::strerror(failure));
  data_ = mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MappedFile::advise_random_reads() const {
  if (size_ > memory_of_the_machine() / 2) ::madvise(data_, size_, MADV_RANDOM);
}

std::string_view npy_descr(at::ScalarType dtype) {
  const auto* const entry =
      std::find_if(std::begin(kMappedDtypes), std::end(kMappedDtypes),
                   [&](const NpyDtype& candidate) { return candidate.dtype == dtype; });
  if (entry == std::end(kMappedDtypes)) {
    detail::raise<LogicError>("npy_descr: no arrays of {}", c10::getDtypeNames(dtype).first);
  }
  return entry->descr;
}

at::Tensor map_npy(const std::filesystem::path& path, at::ScalarType dtype, bool random_reads) {
  const std::string where = path.string();
  const auto file = std::make_shared<const MappedFile>(path);
  const NpyHeader header = parse_npy_header(file->bytes(), where);
  require(descr_is(header.descr, dtype), where, "dtype '{}', expected '{}' ({})", header.descr,
          npy_descr(dtype), c10::getDtypeNames(dtype).first);
  require(header.order == ArrayOrder::kC || header.shape.size() < 2, where,
          "an array in Fortran order cannot be mapped");
  const std::size_t item_bytes = c10::elementSize(dtype);
  const std::string_view items = file->bytes().substr(header.data_begin);
  count_items(header.shape, static_cast<std::int64_t>(item_bytes), items.size(), where);
  require(header.data_begin % item_bytes == 0, where,
          "its items begin at byte {}, which is no multiple of {}", header.data_begin, item_bytes);
  if (random_reads) file->advise_random_reads();
  // A tensor cannot be marked read-only.
  return at::from_blob(
      const_cast<char*>(items.data()), header.shape, [file](void* /*items*/) {},
      at::TensorOptions(dtype));
}

}  // namespace mezzo::data
