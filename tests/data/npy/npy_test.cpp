#include "mezzo/data/npy/npy.h"

#include <ATen/ATen.h>

#include "support/npy_writer.h"

namespace mezzo::data {
namespace {

using namespace mezzo::test;

testing::AssertionResult refused(const std::string& bytes, const std::string& fault) {
  return throws<IoError>([&] { parse_npy(bytes, "a.npy"); }, {"a.npy: ", fault});
}

testing::AssertionResult header_refused(const std::string& header, const std::string& fault) {
  return refused(npy_with_header(header, ""), fault);
}

std::string with_version(std::string bytes, char version) {
  bytes[6] = version;
  if (version > 1) bytes.insert(10, 2, '\0');
  return bytes;
}

TEST(Npy, integers_floats_and_booleans_keep_values_shape_and_dtype) {
  const std::vector<std::int64_t> numbers = {1, -2, 3, 4, 5, -6};
  EXPECT_TRUE(at::equal(parse_npy(npy_int64({2, 3}, numbers), "a"),
                        at::tensor(numbers, at::kLong).view({2, 3})));
  EXPECT_TRUE(at::equal(parse_npy(npy_float32({3}, {0.5F, -1.0F, 3e38F}), "a"),
                        at::tensor({0.5F, -1.0F, 3e38F})));
  EXPECT_TRUE(at::equal(parse_npy(npy_bool({3}, "101"), "a"), at::tensor({1, 0, 1}).to(at::kBool)));
  EXPECT_TRUE(at::equal(parse_npy(npy("<f8", {}, raw_bytes<double>({0.1})), "a"),
                        at::scalar_tensor(0.1, at::kDouble)));
  EXPECT_TRUE(at::equal(parse_npy(npy("<f2", {2}, std::string("\x00\x3C\x00\xC0", 4)), "a"),
                        at::tensor({1.0F, -2.0F}).to(at::kHalf)));
}

TEST(Npy, unsigned_integers_widen) {
  EXPECT_TRUE(at::equal(parse_npy(npy("<u2", {1}, raw_bytes<std::uint16_t>({65535})), "a"),
                        at::tensor({65535}, at::kInt)));
  EXPECT_TRUE(at::equal(parse_npy(npy("<u4", {1}, raw_bytes<std::uint32_t>({4294967295})), "a"),
                        at::tensor({std::int64_t{4294967295}}, at::kLong)));
  EXPECT_TRUE(refused(npy("<u8", {1}, std::string(8, '\xFF')), "beyond the int64 range"));
}

TEST(Npy, fortran_order_gives_the_same_matrix) {
  const std::string columns = raw_bytes<std::int64_t>({1, 4, 2, 5, 3, 6});
  EXPECT_TRUE(at::equal(parse_npy(npy("<i8", {2, 3}, columns, "True"), "a"),
                        at::arange(1, 7, at::kLong).view({2, 3})));
}

TEST(Npy, versions_two_and_three_read_like_one) {
  const std::string bytes = npy_int64({2}, {7, 8});
  for (const char version : {'\2', '\3'}) {
    EXPECT_TRUE(at::equal(parse_npy(with_version(bytes, version), "a"), parse_npy(bytes, "a")));
  }
  EXPECT_TRUE(refused(with_version(bytes, '\4'), "npy version 4.0"));
}

TEST(Npy, empty_arrays_keep_their_shape) {
  EXPECT_EQ(parse_npy(npy_int64({2, 0}, {}), "a").sizes(), (std::vector<std::int64_t>{2, 0}));
}

TEST(Npy, every_truncation_is_an_io_error) {
  const std::string bytes = npy_int64({2}, {7, 8});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(refused(bytes.substr(0, size), "")) << size;
  }
  EXPECT_TRUE(refused(bytes.substr(0, 20), "truncated npy header"));
  EXPECT_TRUE(refused(bytes.substr(0, bytes.size() - 1), "needs 16 bytes of data, got 15"));
}

TEST(Npy, left_over_bytes_are_an_io_error) {
  EXPECT_TRUE(refused(npy_int64({2}, {7, 8}) + "x", "needs 16 bytes of data, got 17"));
}

TEST(Npy, other_files_are_an_io_error) {
  EXPECT_TRUE(refused("PK\3\4", "not an npy file"));
  EXPECT_TRUE(refused("", "not an npy file"));
}

TEST(Npy, a_header_longer_than_the_file_is_an_io_error) {
  std::string bytes = with_version(npy_int64({1}, {7}), '\2');
  bytes.replace(8, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_TRUE(refused(bytes, "it claims 4294967295 bytes"));
}

TEST(Npy, shapes_that_overflow_or_lie_are_an_io_error) {
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_TRUE(refused(npy("<i8", {huge, huge}, ""), "overflows"));
  EXPECT_TRUE(refused(npy("<i8", {0, huge, huge}, ""), "overflows"));
  EXPECT_TRUE(refused(npy("<i8", {1 << 30}, ""), "needs 8589934592 bytes of data, got 0"));
  EXPECT_TRUE(refused(npy("<i8", {-1}, std::string(8, '\0')), "negative dimension"));
  EXPECT_TRUE(header_refused(
      "{'descr': '<i8', 'fortran_order': False, 'shape': (99999999999999999999,), }", "int64"));
}

TEST(Npy, damaged_headers_are_an_io_error) {
  EXPECT_TRUE(header_refused("", "expected '{'"));
  EXPECT_TRUE(header_refused("{'descr': '<i8', }", "missing"));
  EXPECT_TRUE(header_refused("{'descr': '<i8', 'descr': '<i8', }", "repeated"));
  EXPECT_TRUE(header_refused("{'descr': '<i8', 'fortran_order': 1, }", "True or False"));
  EXPECT_TRUE(header_refused("{'descr: }", "without an end"));
  EXPECT_TRUE(header_refused("{'shape': (2, 'x')}", "a dimension"));
  EXPECT_TRUE(header_refused("{'colour': '<i8'}", "unexpected"));
  EXPECT_TRUE(
      header_refused("{'descr': '<i8', 'fortran_order': False, 'shape': (0,)} exit()", "after"));
  EXPECT_TRUE(header_refused("{'descr': __import__('os'), }", "expected a string"));
}

TEST(Npy, objects_records_text_and_other_types_are_an_io_error) {
  EXPECT_TRUE(refused(npy("|O", {1}, "cos\nsystem\n."), "Python objects are not read"));
  EXPECT_TRUE(header_refused("{'descr': [('a', '<i8')], }", "records are not read"));
  EXPECT_TRUE(refused(npy("<U2", {1}, std::string(8, '\0')), "expected booleans, integers"));
  EXPECT_TRUE(refused(npy(">i8", {1}, std::string(8, '\0')), "big-endian"));
  EXPECT_TRUE(refused(npy("<c8", {1}, std::string(8, '\0')), "expected booleans, integers"));
  EXPECT_TRUE(refused(npy("", {1}, ""), "not known"));
}

TEST(Npy, booleans_are_zero_or_one) {
  EXPECT_TRUE(refused(npy("|b1", {2}, "\1\2"), "neither 0 nor 1, item 1"));
}

TEST(NpyText, unicode_and_byte_items_become_utf8) {
  const std::string items = raw_bytes<std::uint32_t>({'a', 0xE9, 0x20AC, 0x1F600, 'b', 0, 0, 0});
  EXPECT_EQ(parse_npy_text(npy("<U4", {2}, items), "a"),
            (std::vector<std::string>{"a\u00E9\u20AC\U0001F600", "b"}));
  EXPECT_EQ(parse_npy_text(npy("|S3", {}, "csr"), "a"), std::vector<std::string>{"csr"});
}

TEST(NpyText, what_is_no_text_is_an_io_error) {
  const auto text_refused = [](const std::string& bytes, const std::string& fault) {
    return throws<IoError>([&] { parse_npy_text(bytes, "a.npy"); }, {"a.npy: ", fault});
  };
  EXPECT_TRUE(text_refused(npy_int64({1}, {1}), "expected text"));
  EXPECT_TRUE(text_refused(npy("|O", {1}, "."), "expected text"));
  EXPECT_TRUE(text_refused(npy("<U0", {std::int64_t{1} << 60}, ""), "no valid length"));
  EXPECT_TRUE(text_refused(npy("<U99999999999", {1}, ""), "no valid length"));
  EXPECT_TRUE(text_refused(npy("<U2", {2}, "1234"), "needs 16 bytes"));
  EXPECT_TRUE(text_refused(npy("<U1", {1}, std::string("\0\xD8\0\0", 4)), "no Unicode"));
  EXPECT_TRUE(text_refused(npy("<U1", {1}, "\xFF\xFF\xFF\xFF"), "no Unicode"));
  EXPECT_TRUE(text_refused(npy("|S1", {1}, "\xE9"), "not ASCII"));
}

TEST(Npy, a_changed_byte_gives_numbers_or_an_io_error) {
  const std::string bytes = npy_int64({2}, {7, 8});
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const int change : {1, 16, 128}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ change);
      try {
        EXPECT_TRUE(parse_npy(damaged, "a").defined());
      } catch (const IoError&) {
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::data
