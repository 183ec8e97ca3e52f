#include "mezzo/data/npy/mapped_file.h"

#include <limits>

#include <ATen/ATen.h>
#include <sys/stat.h>

#include "mezzo/data/npy/npy.h"

#include "support/npy_writer.h"

namespace mezzo::data {
namespace {

using namespace mezzo::test;

TEST(MappedFile, shows_the_bytes_of_a_file) {
  const TempFolder folder;
  EXPECT_EQ(MappedFile(folder.write("a", "some text")).bytes(), "some text");
  EXPECT_EQ(MappedFile(folder.write("empty", "")).bytes(), "");
}

TEST(MappedFile, what_is_no_regular_file_is_an_io_error) {
  const TempFolder folder;
  EXPECT_THROWS(IoError, "no such file", MappedFile(folder.path("none")));
  EXPECT_THROWS(IoError, "not a regular file", MappedFile(folder.path()));
  ASSERT_EQ(mkfifo(folder.path("pipe").c_str(), 0600), 0);
  EXPECT_THROWS(IoError, "not a regular file", MappedFile(folder.path("pipe")));
}

TEST(NpyHeader, tells_where_the_items_begin) {
  const std::string bytes = npy_float32({2, 3}, {0, 1, 2, 3, 4, 5});
  const NpyHeader header = parse_npy_header(bytes, "x");
  EXPECT_EQ(header.descr, "<f4");
  EXPECT_EQ(header.order, ArrayOrder::kC);
  EXPECT_EQ(header.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(header.data_begin, bytes.size() - 6 * sizeof(float));
  EXPECT_EQ(parse_npy_header(bytes.substr(0, header.data_begin), "x").data_begin,
            header.data_begin);
}

TEST(MapNpy, gives_the_items_of_every_dtype) {
  const TempFolder folder;
  const auto map = [&](const std::string& bytes, at::ScalarType dtype) {
    return map_npy(folder.write("a.npy", bytes), dtype);
  };
  EXPECT_TRUE(at::equal(map(npy_float32({2, 2}, {1, 2, 3, 4}), at::kFloat),
                        at::tensor({1.F, 2.F, 3.F, 4.F}).view({2, 2})));
  EXPECT_TRUE(at::equal(map(npy_int64({2}, {-1, 1LL << 40}), at::kLong),
                        at::tensor({std::int64_t{-1}, std::int64_t{1} << 40}, at::kLong)));
  EXPECT_TRUE(at::equal(map(npy_int32({2}, {-1, 7}), at::kInt), at::tensor({-1, 7}, at::kInt)));
  EXPECT_TRUE(at::equal(map(npy_bool({2}, "10"), at::kBool), at::tensor({1, 0}).to(at::kBool)));
  EXPECT_TRUE(at::equal(map(npy("<f2", {2}, raw_bytes<std::uint16_t>({0x3C00, 0xC000})), at::kHalf),
                        at::tensor({1.F, -2.F}).to(at::kHalf)));
  for (const char* descr : {"<u2", "|V2", "<V2"}) {
    EXPECT_TRUE(
        at::equal(map(npy(descr, {2}, raw_bytes<std::uint16_t>({0x3F80, 0xC000})), at::kBFloat16),
                  at::tensor({1.F, -2.F}).to(at::kBFloat16)))
        << descr;
  }
  EXPECT_EQ(map(npy_float32({0, 5}, {}), at::kFloat).sizes().vec(),
            (std::vector<std::int64_t>{0, 5}));
}

TEST(MapNpy, refuses_other_dtypes_and_orders) {
  const TempFolder folder;
  const auto refused = [&](const std::string& bytes, at::ScalarType dtype,
                           const std::string& fault) {
    const std::string path = folder.write("a.npy", bytes);
    return throws<IoError>([&] { map_npy(path, dtype); }, {path, fault});
  };
  EXPECT_TRUE(refused(npy_float32({1}, {1}), at::kHalf, "dtype '<f4', expected '<f2'"));
  EXPECT_TRUE(refused(npy("<u2", {1}, "xx"), at::kHalf, "dtype '<u2'"));
  EXPECT_TRUE(refused(npy(">f4", {1}, "xxxx"), at::kFloat, "dtype '>f4'"));
  EXPECT_TRUE(refused(npy("<f4", {2, 1}, std::string(8, 'x'), "True"), at::kFloat, "Fortran"));
}

TEST(MapNpy, refuses_files_that_are_shorter_or_longer_than_their_shape) {
  const TempFolder folder;
  const std::string whole = npy_float32({2, 3}, {0, 1, 2, 3, 4, 5});
  const auto refused = [&](const std::string& bytes, const std::string& fault) {
    const std::string path = folder.write("a.npy", bytes);
    return throws<IoError>([&] { map_npy(path, at::kFloat); }, {path, fault});
  };
  EXPECT_TRUE(refused(whole.substr(0, whole.size() - 1), "needs 24 bytes of data, got 23"));
  EXPECT_TRUE(refused(whole + "x", "needs 24 bytes of data, got 25"));
  EXPECT_TRUE(refused("", "not an npy file"));
  EXPECT_TRUE(refused(whole.substr(0, 40), "truncated"));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(refused(npy("<f4", {kMost, 2}, ""), "overflows"));
  EXPECT_TRUE(refused(npy("<f4", {kMost, 2, 0}, ""), "overflows"));
}

TEST(MapNpy, refuses_items_that_lie_askew) {
  const TempFolder folder;
  std::string bytes = npy_float32({1}, {1});
  bytes[8] = static_cast<char>(bytes[8] + 1);  // one blank longer
  bytes.insert(bytes.size() - 5, " ");
  const std::string path = folder.write("a.npy", bytes);
  EXPECT_THROWS(IoError, fragments(path, "no multiple of 4"), map_npy(path, at::kFloat));
}

TEST(MapNpy, the_file_stays_mapped_while_a_tensor_uses_it) {
  const TempFolder folder;
  at::Tensor row;
  {
    const std::string path = folder.write("a.npy", npy_float32({2, 2}, {1, 2, 3, 4}));
    row = map_npy(path, at::kFloat, /*random_reads=*/true)[1];
    std::filesystem::remove(path);
  }
  EXPECT_TRUE(at::equal(row, at::tensor({3.F, 4.F})));
}

TEST(MapNpy, is_a_view_of_the_file_and_no_copy) {
  const TempFolder folder;
  const std::string bytes = npy_float32({2}, {1, 2});
  const std::string path = folder.write("a.npy", bytes);
  const at::Tensor items = map_npy(path, at::kFloat);
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(bytes.size() - sizeof(float)));
  file << raw_bytes<float>({5}) << std::flush;
  EXPECT_EQ(items[1].item<float>(), 5);
}

}  // namespace
}  // namespace mezzo::data
