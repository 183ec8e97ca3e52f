#include "mezzo/data/source/array_pieces.h"

#include <cmath>

#include "data/source/source_reader.h"

namespace mezzo::data {
namespace {

using namespace mezzo::test;

class ArrayStream : public testing::Test {
 protected:
  Edges edges_of_array(const std::string& npy_bytes, std::int64_t num_nodes = 10) const {
    const std::string path = folder_.write("e.npy", npy_bytes);
    Edges edges;
    for_each_edge_of_array([&] { return NpyStream(path); }, num_nodes,
                           [&](std::int64_t s, std::int64_t d) { edges.emplace_back(s, d); });
    return edges;
  }

  at::Tensor rows_of_array(const std::string& npy_bytes, std::int64_t num_nodes) const {
    std::vector<at::Tensor> chunks;
    take_rows_of_array(NpyStream(folder_.write("f.npy", npy_bytes)), num_nodes,
                       [&](const at::Tensor& rows) { chunks.push_back(rows); });
    return at::cat(chunks);
  }

  testing::AssertionResult refused_edges(const std::string& npy_bytes,
                                         const std::vector<std::string>& parts) const {
    return throws<IoError>([&] { edges_of_array(npy_bytes); }, parts);
  }
  testing::AssertionResult refused_rows(const std::string& npy_bytes, std::int64_t num_nodes,
                                        const std::vector<std::string>& parts) const {
    return throws<IoError>([&] { rows_of_array(npy_bytes, num_nodes); }, parts);
  }

  TempFolder folder_;
};

TEST_F(ArrayStream, reads_files_and_members_in_steps) {
  const std::string bytes = npy_int32({2, 3}, {1, 2, 3, 4, 5, 6});
  const std::string plain = folder_.write("a.npy", bytes);
  const std::string npz = folder_.write("a.npz", zip_bytes({{"x.npy", bytes, 8}}));
  NpyStream streams[] = {NpyStream(plain), NpyStream(npz, "x")};
  for (NpyStream& stream : streams) {
    EXPECT_EQ(stream.shape(), (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(integers_of(stream.next(2)), (std::vector<std::int64_t>{1, 2}));
    stream.skip(1);
    EXPECT_EQ(integers_of(stream.next(3)), (std::vector<std::int64_t>{4, 5, 6}));
  }
}

TEST_F(ArrayStream, truncated_longer_and_damaged_arrays_are_io_errors) {
  const std::string bytes = npy_int64({3}, {1, 2, 3});
  const auto open = [&](const std::string& contents) {
    NpyStream(folder_.write("a.npy", contents)).next(3);
  };
  EXPECT_THROWS(IoError, "a.npy", open(bytes.substr(0, bytes.size() - 1)));
  EXPECT_THROWS(IoError, fragments("a.npy", "needs"), open(bytes + "x"));
  EXPECT_THROWS(IoError, "truncated", open(bytes.substr(0, 20)));
  EXPECT_THROWS(IoError, "not an npy file", open("no npy file at all"));
  EXPECT_THROWS(IoError, "dtype", open(npy("|O", {1}, "x")));
  const std::string npz =
      folder_.write("a.npz", zip_bytes({{.name = "x.npy", .contents = bytes, .crc_claim = 1}}));
  EXPECT_THROWS(IoError, fragments("a.npz: x", "CRC"), NpyStream(npz, "x").next(3));
  EXPECT_THROWS(IoError, fragments("a.npz: array 'y' is missing", "it has: x"),
                NpyStream(npz, "y"));
}

TEST_F(ArrayStream, edges_are_read_in_both_orders_and_checked) {
  const Edges expected = {{1, 4}, {2, 5}, {3, 6}};
  EXPECT_EQ(edges_of_array(npy_int64({2, 3}, {1, 2, 3, 4, 5, 6})), expected);
  EXPECT_EQ(edges_of_array(
                npy("<i8", {2, 3}, raw_bytes(std::vector<std::int64_t>{1, 4, 2, 5, 3, 6}), "True")),
            expected);
  EXPECT_TRUE(refused_edges(npy_int64({2, 1}, {1, 10}),
                            {"e.npy", "edge 0 joins 1 and 10, outside [0, 10)"}));
  EXPECT_TRUE(
      refused_edges(npy_int64({3, 2}, {1, 2, 3, 4, 5, 6}), {"expected shape [2, E], got [3, 2]"}));
  EXPECT_TRUE(refused_edges(npy_float32({2, 1}, {1, 2}), {"integers"}));
}

TEST_F(ArrayStream, rows_keep_float16_and_become_float32_otherwise) {
  const at::Tensor features =
      rows_of_array(npy("<f8", {2, 2}, raw_bytes(std::vector<double>{1, 2, 3, 4})), 2);
  EXPECT_EQ(features.scalar_type(), at::kFloat);
  EXPECT_EQ(floats_of(features), (std::vector<float>{1, 2, 3, 4}));
  const std::vector<std::uint16_t> halves = {0x3C00, 0x4000};  // 1 and 2
  EXPECT_EQ(rows_of_array(npy("<f2", {2, 1}, raw_bytes(halves)), 2).scalar_type(), at::kHalf);
  EXPECT_TRUE(refused_rows(npy_float32({2, 1}, {1, NAN}), 2, {"f.npy", "row 1", "not finite"}));
  EXPECT_TRUE(refused_rows(npy_float32({2, 1}, {1, 2}), 3, {"expected shape [3, F], got [2, 1]"}));
}

TEST_F(ArrayStream, rows_in_fortran_order_are_transposed) {
  const std::vector<double> columns = {1, 3, 5, 2, 4, 6};
  const at::Tensor rows = rows_of_array(npy("<f8", {3, 2}, raw_bytes(columns), "True"), 3);
  EXPECT_EQ(rows.scalar_type(), at::kFloat);
  EXPECT_EQ(rows.size(0), 3);
  EXPECT_EQ(floats_of(rows), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(refused_rows(npy("<f4", {2, 2}, raw_bytes(std::vector<float>{1, NAN, 3, 4}), "True"),
                           2, {"f.npy", "row 1", "not finite"}));
}

}  // namespace
}  // namespace mezzo::data
