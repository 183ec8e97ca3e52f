#include "mezzo/data/npy/npz.h"

#include <ATen/ATen.h>
#include <sys/stat.h>

#include "support/npy_writer.h"

namespace mezzo::data {
namespace {

using namespace mezzo::test;

const std::vector<std::int64_t> kNumbers = {0, 1, 1, 2, 3, 5};

std::string numbers_npy() {
  return npy_int64({6}, kNumbers);
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

/// numbers_npy() as zlib deflates it at level 9.
const std::string kDeflatedNumbers = from_hex(
    "9bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9369a1aea3a09e965f54529498179f5f9492"
    "0a12774bcc294e058a17672416a402f91a663a9a3a0ab50a14002e06286044a399a03433946685d2"
    "00");

/// 4096 zeros as zlib deflates them.
const std::string kDeflatedZeros = from_hex("edc1010d000000c2a0f74f6d0f0714000000f06e");

class Npz : public testing::Test {
 protected:
  std::string write(const std::vector<ZipMember>& members) const {
    return folder_.write("a.npz", zip_bytes(members));
  }

  testing::AssertionResult refused(const std::vector<ZipMember>& members,
                                   const std::string& fault) const {
    const std::string path = write(members);
    return throws<IoError>([&] { NpzFile(path).numbers("x"); }, {path, fault});
  }

  testing::AssertionResult archive_refused(const std::string& bytes) const {
    const std::string path = folder_.write("a.npz", bytes);
    return throws<IoError>([&] { NpzFile(path).numbers("x"); }, {path});
  }

  TempFolder folder_;
};

TEST_F(Npz, stored_and_deflated_members_read_the_same) {
  const NpzFile file(write({{"x.npy", numbers_npy()},
                            {"y.npy", numbers_npy(), 8},
                            {"z.npy", numbers_npy(), 8, kDeflatedNumbers}}));
  EXPECT_EQ(file.keys(), (std::vector<std::string>{"x", "y", "z"}));
  for (const char* key : {"x", "y", "z"}) {
    EXPECT_TRUE(at::equal(file.numbers(key), at::tensor(kNumbers, at::kLong))) << key;
  }
}

TEST_F(Npz, text_and_objects_are_told_apart) {
  const NpzFile file(
      write({{"names.npy", npy("|S2", {2}, "abcd")}, {"o.npy", npy("|O", {1}, ".")}}));
  EXPECT_EQ(file.text("names"), (std::vector<std::string>{"ab", "cd"}));
  EXPECT_FALSE(file.holds_objects("names"));
  EXPECT_TRUE(file.holds_objects("o"));
}

TEST_F(Npz, a_missing_array_is_an_io_error_that_lists_the_others) {
  EXPECT_TRUE(refused({{"y.npy", numbers_npy()}, {"note.txt", ""}}, "it has: y"));
}

TEST_F(Npz, missing_files_folders_and_other_files_are_io_errors) {
  EXPECT_THROWS(IoError, "no such file", NpzFile(folder_.path("none.npz")));
  EXPECT_THROWS(IoError, "not a regular file", NpzFile(folder_.path()));
  EXPECT_TRUE(archive_refused(""));
  EXPECT_TRUE(archive_refused(numbers_npy()));
}

TEST_F(Npz, a_pipe_is_an_io_error_and_no_hang) {
  ASSERT_EQ(mkfifo(folder_.path("pipe").c_str(), 0600), 0);
  EXPECT_THROWS(IoError, "not a regular file", NpzFile(folder_.path("pipe")));
}

TEST_F(Npz, sizes_that_lie_are_io_errors) {
  EXPECT_TRUE(
      refused({{.name = "x.npy", .contents = numbers_npy(), .size_claim = 4000000000}}, ""));
  EXPECT_TRUE(refused({{.name = "x.npy", .contents = numbers_npy(), .size_claim = 10}}, ""));
  EXPECT_TRUE(
      refused({{.name = "x.npy", .contents = numbers_npy(), .packed_claim = 4000000000}}, ""));
  EXPECT_TRUE(
      refused({{.name = "x.npy", .contents = numbers_npy(), .method = 8, .size_claim = 4000000000}},
              "too many to come from"));
  EXPECT_TRUE(
      refused({{.name = "x.npy", .contents = numbers_npy(), .method = 8, .size_claim = 10}}, ""));
  EXPECT_TRUE(
      refused({{.name = "x.npy", .contents = numbers_npy(), .method = 8, .size_claim = 9000}}, ""));
  EXPECT_TRUE(refused({{.name = "x.npy",
                        .contents = std::string(128, '\0'),
                        .method = 8,
                        .packed = kDeflatedZeros}},
                      ""));
}

TEST_F(Npz, a_wrong_checksum_is_an_io_error) {
  EXPECT_TRUE(refused({{.name = "x.npy", .contents = numbers_npy(), .crc_claim = 1}}, "CRC"));
}

TEST_F(Npz, broken_deflate_streams_are_io_errors) {
  EXPECT_TRUE(refused(
      {{.name = "x.npy", .contents = numbers_npy(), .method = 8, .packed = "\xFF\xFF\xFF"}}, ""));
  EXPECT_TRUE(refused({{.name = "x.npy",
                        .contents = numbers_npy(),
                        .method = 8,
                        .packed = kDeflatedNumbers.substr(0, 30)}},
                      ""));
}

TEST_F(Npz, other_methods_and_encryption_are_io_errors) {
  EXPECT_TRUE(
      refused({{.name = "x.npy", .contents = numbers_npy(), .method = 12}}, "zip method 12"));
  EXPECT_TRUE(refused({{.name = "x.npy", .contents = numbers_npy(), .flags = 1}}, "encrypted"));
}

TEST_F(Npz, two_members_of_one_name_are_an_io_error) {
  EXPECT_TRUE(refused({{"x.npy", numbers_npy()}, {"x.npy", numbers_npy()}}, ""));
}

TEST_F(Npz, faults_inside_a_member_name_the_array) {
  EXPECT_TRUE(refused({{"x.npy", "nonsense"}}, ": x: not an npy file"));
  EXPECT_TRUE(refused({{"x.npy", npy("|O", {1}, "cos\nsystem\n.")}}, "Python objects"));
}

TEST_F(Npz, every_truncation_is_an_io_error) {
  const std::string bytes = zip_bytes({{"x.npy", numbers_npy()}});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(archive_refused(bytes.substr(0, size))) << size;
  }
}

TEST_F(Npz, a_changed_byte_gives_the_numbers_or_an_io_error) {
  for (const std::uint16_t method : {std::uint16_t{0}, std::uint16_t{8}}) {
    const std::string bytes = zip_bytes({{"x.npy", numbers_npy(), method}});
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 == 0 ? 1 : 255));
      const std::string path = folder_.write("a.npz", damaged);
      try {
        // The checksum protects the contents: if the file still loads, they are unchanged.
        EXPECT_TRUE(at::equal(NpzFile(path).numbers("x"), at::tensor(kNumbers, at::kLong)));
      } catch (const IoError&) {
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::data
