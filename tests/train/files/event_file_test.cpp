#include "mezzo/train/files/event_file.h"

#include <cstdint>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "mezzo/core/error.h"

#include "support/npy_writer.h"

namespace mezzo {
namespace {

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The payloads of the records; fails for a length that does not fit.
std::vector<std::string> payloads(const std::string& path) {
  const std::string bytes = bytes_of_file(path);
  constexpr std::size_t kHead = 12, kTail = 4;
  std::vector<std::string> all;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t size = 0;
    if (at + kHead > bytes.size()) throw std::runtime_error("half a record");
    std::memcpy(&size, bytes.data() + at, sizeof size);
    if (at + kHead + size + kTail > bytes.size()) throw std::runtime_error("half a record");
    all.push_back(bytes.substr(at + kHead, size));
    at += kHead + size + kTail;
  }
  return all;
}

// The vectors of RFC 3720, appendix B.4, and the check value of the CRC catalogue.
TEST(EventFile, has_the_crc_of_rfc_3720) {
  std::string ascending;
  for (char i = 0; i < 32; ++i) ascending += i;
  EXPECT_EQ(detail::crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(detail::crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(detail::crc32c(ascending), 0x46dd794eU);
  EXPECT_EQ(detail::crc32c(std::string(ascending.rbegin(), ascending.rend())), 0x113fdb5cU);
  EXPECT_EQ(detail::crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(detail::crc32c(""), 0U);
}

// The bytes that RecordWriter(file).write(Event(...).SerializeToString()) of tensorboard 2.21.0
// writes, with wall_time=1700000000.5 unless it is 0.
TEST(EventFile, records_are_those_of_tensorboard) {
  constexpr double kTime = 1700000000.5;
  EXPECT_EQ(hex(detail::version_record(kTime)),  // file_version="brain.Event:2"
            "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110");
  EXPECT_EQ(hex(detail::start_record(kTime, 300)),  // session_log=SessionLog(status=START)
            "100000000000000095fbfe180900002040fc54d94110ac023a020801b94512a3");
  EXPECT_EQ(hex(detail::scalars_record(kTime, 300, {{"loss/train", 0.1}, {"accuracy/val", 0}})),
            "36000000000000004f578cef0900002040fc54d94110ac022a280a110a0a6c6f73732f747261696e"
            "15cdcccc3d0a130a0c61636375726163792f76616c150000000028b6114b");
  std::string letters;  // lengths of two bytes; no time and no step
  for (int i = 0; i < 200; ++i) letters += "74";
  EXPECT_EQ(hex(detail::scalars_record(0, 0, {{std::string(200, 't'), -1.5}})),
            "d6000000000000004d151adf2ad3010ad0010ac801" + letters + "150000c0bf4637b50e");
}

TEST(EventFile, begins_with_the_version_and_where_it_starts) {
  const test::TempFolder folder;
  const std::string path = folder.path("runs/one");
  EventFile events(path);
  EXPECT_EQ(payloads(events.path()).size(), 1U);
  events.add(51, {{"loss/train", 1}});
  ASSERT_EQ(payloads(events.path()).size(), 3U);  // flushed
  events.add(52, {{"loss/train", 0.5}});
  const std::vector<std::string> all = payloads(events.path());
  ASSERT_EQ(all.size(), 4U);
  EXPECT_TRUE(all[0].ends_with("brain.Event:2")) << hex(all[0]);
  EXPECT_TRUE(hex(all[1]).ends_with("10333a020801")) << hex(all[1]);  // step 51, START
  EXPECT_NE(all[2].find("loss/train"), std::string::npos);
}

TEST(EventFile, every_object_has_a_new_file_with_the_name_that_tensorboard_looks_for) {
  const test::TempFolder folder;
  const EventFile first(folder.path()), second(folder.path());
  EXPECT_NE(first.path(), second.path());
  const std::string name = std::filesystem::path(first.path()).filename().string();
  EXPECT_TRUE(name.starts_with("events.out.tfevents.")) << name;
  EXPECT_NE(name.find(fmt::format(".{}.0", ::getpid())), std::string::npos) << name;
}

TEST(EventFile, a_folder_that_cannot_be_made_is_an_error) {
  const test::TempFolder folder;
  const std::string file = folder.write("file", "");
  EXPECT_THROWS(IoError, file + "/runs cannot be made", EventFile(file + "/runs"));
  EXPECT_THROWS(IoError, file + " is no folder", EventFile{file});
  EXPECT_THROWS(IoError, "the folder name is empty", EventFile(""));
}

}  // namespace
}  // namespace mezzo
