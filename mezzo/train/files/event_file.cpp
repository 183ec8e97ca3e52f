#include "mezzo/train/files/event_file.h"

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "mezzo/core/error.h"
#include "mezzo/train/files/files.h"

namespace mezzo {
namespace {

/// Appends the low `size` bytes, the lowest first.
void append_fixed(std::string& bytes, std::uint64_t value, int size) {
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (CHAR_BIT * i));
}

void append_varint(std::string& bytes, std::uint64_t value) {
  constexpr std::uint64_t kMore = 0x80;
  for (; value >= kMore; value >>= 7U) bytes += static_cast<char>(value | kMore);
  bytes += static_cast<char>(value);
}

/// A protobuf message, field by field. Defaults are written only by the fields of a `oneof`.
class Message {
 public:
  Message& integer(std::uint64_t field, std::uint64_t value) {
    append_varint(bytes_, field << 3U);
    append_varint(bytes_, value);
    return *this;
  }
  Message& float64(std::uint64_t field, double value) {
    append_varint(bytes_, field << 3U | 1U);
    append_fixed(bytes_, std::bit_cast<std::uint64_t>(value), sizeof value);
    return *this;
  }
  Message& float32(std::uint64_t field, float value) {
    append_varint(bytes_, field << 3U | 5U);
    append_fixed(bytes_, std::bit_cast<std::uint32_t>(value), sizeof value);
    return *this;
  }
  /// Text or another message.
  Message& text(std::uint64_t field, std::string_view value) {
    append_varint(bytes_, field << 3U | 2U);
    append_varint(bytes_, value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// wall_time and step of an Event.
Message event(double wall_time, std::int64_t step) {
  Message message;
  if (wall_time != 0) message.float64(1, wall_time);
  if (step != 0) message.integer(2, static_cast<std::uint64_t>(step));
  return message;
}

/// A CRC-32C as TFRecord stores it: a CRC of bytes that contain a CRC would be weak.
std::uint32_t masked_crc32c(std::string_view bytes) {
  constexpr std::uint32_t kDelta = 0xa282ead8U;
  return std::rotr(detail::crc32c(bytes), 15) + kDelta;
}

/// A record of TFRecord: length, its CRC, the bytes, their CRC.
std::string framed(const Message& message) {
  const std::string& bytes = message.bytes();
  std::string record;
  append_fixed(record, bytes.size(), sizeof(std::uint64_t));
  append_fixed(record, masked_crc32c(record), sizeof(std::uint32_t));
  record += bytes;
  append_fixed(record, masked_crc32c(bytes), sizeof(std::uint32_t));
  return record;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

}  // namespace

EventFile::EventFile(const std::string& folder) {
  make_folder("events", folder);
  const double now = seconds_since_1970();
  for (std::int64_t n = 0; !file_; ++n) {
    path_ = fmt::format("{}/events.out.tfevents.{:.0f}.{}.{}.{}", folder, now, host_name(),
                        ::getpid(), n);
    file_.reset(std::fopen(path_.c_str(), "wbxe"));  // x: not the file of another run
    if (!file_ && errno != EEXIST) {
      detail::raise<IoError>("{}: cannot be written: {}", path_, std::strerror(errno));
    }
  }
  write(detail::version_record(now));
}

void EventFile::add(std::int64_t step, const std::vector<EventScalar>& scalars) {
  const double now = seconds_since_1970();
  const std::string start = is_begun_ ? "" : detail::start_record(now, step);
  write(start + detail::scalars_record(now, step, scalars));
  is_begun_ = true;
}

void EventFile::write(const std::string& record) {
  std::fwrite(record.data(), 1, record.size(), file_.get());
  if (std::fflush(file_.get()) != 0) {
    detail::raise<IoError>("{}: writing failed: {}", path_, std::strerror(errno));
  }
}

namespace detail {

std::uint32_t crc32c(std::string_view bytes) {
  constexpr std::uint32_t kPolynomial = 0x82f63b78U;  // reflected
  static constexpr auto kTable = [] {
    std::array<std::uint32_t, 1U << CHAR_BIT> table{};
    for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
      std::uint32_t rest = byte;
      for (int bit = 0; bit < CHAR_BIT; ++bit) {
        rest = (rest >> 1U) ^ ((rest & 1U) != 0 ? kPolynomial : 0);
      }
      table[byte] = rest;
    }
    return table;
  }();
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xffU] ^ (crc >> CHAR_BIT);
  }
  return ~crc;
}

std::string version_record(double wall_time) {
  return framed(event(wall_time, 0).text(3, "brain.Event:2"));
}

std::string start_record(double wall_time, std::int64_t step) {
  constexpr std::uint64_t kStart = 1;
  return framed(event(wall_time, step).text(7, Message().integer(1, kStart).bytes()));
}

std::string scalars_record(double wall_time, std::int64_t step,
                           const std::vector<EventScalar>& scalars) {
  Message summary;
  for (const EventScalar& scalar : scalars) {
    Message value;
    value.text(1, scalar.tag).float32(2, static_cast<float>(scalar.value));
    summary.text(1, value.bytes());
  }
  return framed(event(wall_time, step).text(5, summary.bytes()));
}

}  // namespace detail
}  // namespace mezzo
