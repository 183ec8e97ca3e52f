#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mezzo/core/export.h"

namespace mezzo {

/// A number of an event.
struct EventScalar {
  std::string tag;  ///< "loss/train": TensorBoard groups by the text before the slash
  double value = 0;
};

/// A file of numbers that TensorBoard reads, `events.out.tfevents.<time>.<host>.<process>.<n>`, as
/// PyTorch's SummaryWriter makes it. Every object makes a new file. Numbers are kept in float32.
class MEZZO_API EventFile {
 public:
  /// Makes the file in `folder`, which is made if needed. Throws IoError.
  explicit EventFile(const std::string& folder);

  /// Adds the numbers of a step and flushes the file, so that a running TensorBoard shows them. The
  /// first call also tells TensorBoard to ignore the steps from `step` on in earlier files of the
  /// folder, because a resumed run repeats them. Throws IoError if writing fails.
  void add(std::int64_t step, const std::vector<EventScalar>& scalars);

  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void write(const std::string& record);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  bool is_begun_ = false;
};

/// The parts of the format: records of TFRecord that hold a protobuf message Event.
namespace detail {

/// The CRC-32C (Castagnoli) of RFC 3720.
MEZZO_API std::uint32_t crc32c(std::string_view bytes);
/// The first record of a file. wall_time: seconds since 1970.
MEZZO_API std::string version_record(double wall_time);
/// A session starts: events of earlier files from `step` on do not count.
MEZZO_API std::string start_record(double wall_time, std::int64_t step);
MEZZO_API std::string scalars_record(double wall_time, std::int64_t step,
                                     const std::vector<EventScalar>& scalars);

}  // namespace detail
}  // namespace mezzo
