#include "mezzo/graph/frame.h"

#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "mezzo/core/error.h"

#include "support/graphs.h"

namespace mezzo::test {
namespace {

using Names = std::vector<std::string>;

Frame nodes(std::int64_t num_rows = 30) {
  return {"node", num_rows, at::kCPU};
}

at::Tensor on_meta(std::int64_t num_rows) {
  return at::empty({num_rows}, at::device(at::kMeta));
}

TEST(Frame, what_is_written_is_read) {
  Frame frame = nodes();
  const at::Tensor h = at::rand({30, 4});
  frame["h"] = h;
  EXPECT_TRUE(frame["h"].is_same(h));
  EXPECT_TRUE(std::as_const(frame)["h"].is_same(h));
  EXPECT_TRUE(frame.at("h").is_same(h));
  EXPECT_EQ(frame.num_rows(), 30);
  EXPECT_TRUE(frame.device().is_cpu());
  EXPECT_EQ(frame.columns().size(), 1U);
}

TEST(Frame, names_are_sorted_and_leave_out_columns_never_assigned) {
  Frame frame = nodes(1);
  frame["b"] = at::zeros({1});
  frame["a"] = at::zeros({1});
  static_cast<void>(frame["asked for"]);
  EXPECT_EQ(frame.names(), Names({"a", "b"}));
  EXPECT_TRUE(frame.contains("a"));
  EXPECT_FALSE(frame.contains("asked for"));
  EXPECT_FALSE(frame.contains("c"));
}

TEST(Frame, missing_column_is_an_error_that_lists_the_columns) {
  Frame frame = nodes();
  EXPECT_TRUE(mentions(error_of([&] { frame.at("x"); }), "nodecolumn'x'ismissing;thereare:none"));
  frame["label"] = at::zeros({30});
  frame["feat"] = at::zeros({30});
  const std::string text = "nodecolumn'x'ismissing;thereare:feat,label";
  EXPECT_TRUE(mentions(error_of([&] { frame.at("x"); }), text));
  EXPECT_TRUE(mentions(error_of([&] { static_cast<void>(std::as_const(frame)["x"]); }), text));
  EXPECT_TRUE(mentions(error_of([&] { frame.erase("x"); }), text));
  frame["x"];  // named, not assigned
  EXPECT_TRUE(mentions(error_of([&] { frame.at("x"); }), text));
}

TEST(Frame, column_of_another_number_of_rows_is_an_error_when_read) {
  Frame frame = nodes();
  frame["h"] = at::zeros({100, 30});
  EXPECT_TRUE(mentions(error_of([&] { frame.at("h"); }), "nodecolumn'h':expected30rows,got100"));
  frame["h"] = at::zeros({});
  EXPECT_TRUE(
      mentions(error_of([&] { frame.at("h"); }), "nodecolumn'h':expected30rows,gotascalar"));
  EXPECT_EQ(std::as_const(frame)["h"].dim(), 0);  // [] checks nothing
}

TEST(Frame, column_on_another_device_is_an_error_when_read) {
  Frame frame("edge", 3, at::kCPU);
  frame["w"] = on_meta(3);
  EXPECT_TRUE(mentions(error_of([&] { frame.at("w"); }), "edgecolumn'w':expectedoncpu,gotonmeta"));
}

TEST(Frame, erase_removes_a_column) {
  Frame frame = nodes(1);
  frame["h"] = at::zeros({1});
  frame.erase("h");
  EXPECT_FALSE(frame.contains("h"));
  EXPECT_TRUE(frame.columns().empty());
}

TEST(Frame, update_replaces_columns_of_the_same_name_and_keeps_the_others) {
  Frame frame = nodes(2);
  frame["a"] = at::zeros({2});
  frame["b"] = at::zeros({2});
  frame.update({{"b", at::ones({2})}, {"c", at::ones({2, 3})}});
  EXPECT_EQ(frame.names(), Names({"a", "b", "c"}));
  EXPECT_EQ(values(frame.at("a")), values(ids({0, 0})));
  EXPECT_EQ(values(frame.at("b")), values(ids({1, 1})));
}

TEST(Frame, update_with_a_wrong_column_changes_nothing) {
  const std::vector<std::pair<at::Tensor, std::string>> wrong = {
      {at::zeros({3}), "nodecolumn'z':expected2rows,got3"},
      {at::Tensor(), "nodecolumn'z':expected2rows,gotanundefinedtensor"},
      {at::zeros({}), "nodecolumn'z':expected2rows,gotascalar"},
      {on_meta(2), "nodecolumn'z':expectedoncpu,gotonmeta"},
  };
  for (const auto& [column, text] : wrong) {
    Frame frame = nodes(2);
    const Columns columns = {{"a", at::zeros({2})}, {"z", column}};
    EXPECT_TRUE(mentions(error_of([&] { frame.update(columns); }), text));
    EXPECT_TRUE(frame.columns().empty());
  }
}

TEST(Frame, rows_gathers_every_column_in_the_order_of_the_ids) {
  Frame frame = nodes(4);
  frame["a"] = ids({10, 11, 12, 13});
  frame["b"] = at::arange(8, at::kLong).view({4, 2});
  const Frame picked = frame.rows(ids({3, 0, 3}));
  EXPECT_EQ(picked.num_rows(), 3);
  EXPECT_EQ(values(picked.at("a")), values(ids({13, 10, 13})));
  EXPECT_EQ(values(picked.at("b")), values(ids({6, 7, 0, 1, 6, 7})));
  EXPECT_EQ(picked.at("b").sizes(), at::IntArrayRef({3, 2}));
  EXPECT_EQ(frame.rows(ids({})).at("b").sizes(), at::IntArrayRef({0, 2}));
}

TEST(Frame, rows_passes_gradients_back) {
  Frame frame = nodes(3);
  const at::Tensor h = leaf(at::ones({3}));
  frame["h"] = h;
  frame.rows(ids({2, 0, 2})).at("h").sum().backward();
  EXPECT_EQ(values(h.grad()), values(ids({1, 0, 2})));
}

TEST(Frame, rows_that_are_not_there_are_errors) {
  Frame frame = nodes(3);
  EXPECT_TRUE(mentions(error_of([&] {
                         frame.rows(ids({0, 3}));
                       }),
                       "nodeframerows:expectedidsin[0,3),got3atposition1"));
  EXPECT_TRUE(mentions(error_of([&] { frame.rows(at::zeros({2})); }),
                       "expectedidstobeanintegervector,gotfloat32[2]"));
  frame["h"] = at::zeros({4});
  EXPECT_TRUE(mentions(error_of([&] { frame.rows(ids({0})); }), "'h':expected3rows,got4"));
}

TEST(Frame, copy_has_its_own_columns_of_shared_tensors) {
  Frame frame = nodes(2);
  frame["a"] = at::zeros({2});
  Frame copy = frame;
  copy["b"] = at::zeros({2});
  copy["a"].fill_(7);
  EXPECT_FALSE(frame.contains("b"));
  EXPECT_EQ(values(frame.at("a")), values(ids({7, 7})));
}

TEST(Frame, to_its_own_device_shares_the_columns) {
  Frame frame = nodes(2);
  frame["a"] = at::zeros({2});
  EXPECT_TRUE(frame.to(at::kCPU).at("a").is_same(frame["a"]));
}

TEST(Frame, to_cuda_moves_every_column) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no CUDA device";
  Frame frame = nodes(2);
  frame["a"] = ids({3, 4});
  const Frame moved = frame.to(at::kCUDA);
  EXPECT_TRUE(moved.device().has_index());
  EXPECT_TRUE(moved.at("a").is_cuda());
  EXPECT_EQ(values(moved.at("a")), values(frame.at("a")));
  EXPECT_EQ(values(moved.rows(ids({1}).cuda()).at("a")), values(ids({4})));
  EXPECT_TRUE(mentions(error_of([&] { moved.rows(ids({1})); }), "expectedidsoncuda:"));
}

TEST(Frame, impossible_sizes_and_devices_are_errors) {
  EXPECT_TRUE(mentions(error_of([] { nodes(-1); }), "nodeframe:expectednum_rows>=0,got-1"));
  EXPECT_TRUE(mentions(error_of([] { Frame("edge", 1, at::kMeta); }),
                       "edgeframe:expectedaCPUorCUDAdevice,gotmeta"));
  EXPECT_TRUE(mentions(error_of([] { nodes().to(at::kMeta); }), "gotmeta"));
}

}  // namespace
}  // namespace mezzo::test
