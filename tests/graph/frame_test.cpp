#include "mezzo/graph/frame.h"

#include <functional>
#include <sstream>

#include <torch/csrc/autograd/custom_function.h>

#include "support/graphs.h"

namespace mezzo::test {
namespace {

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

TEST(Frame, set_writes_a_column_and_refuses_one_that_does_not_fit) {
  Frame frame = nodes();
  const at::Tensor first = at::rand({30, 4}), second = at::rand({30});
  frame.set("h", first);
  EXPECT_TRUE(frame.at("h").is_same(first));
  frame.set("h", second);
  EXPECT_TRUE(frame.at("h").is_same(second));
  for (const auto& [wrong, text] : std::vector<std::pair<at::Tensor, std::string>>{
           {at::rand({29, 4}), "nodecolumn'h':expected30rows,got29"},
           {at::scalar_tensor(1), "nodecolumn'h':expected30rows,gotascalar"},
           {at::Tensor(), "nodecolumn'h':expected30rows,gotanundefinedtensor"},
           {on_meta(30), "nodecolumn'h':expectedoncpu,gotonmeta"}}) {
    EXPECT_ERROR(text, frame.set("h", wrong));
    EXPECT_TRUE(frame.at("h").is_same(second));
  }
  EXPECT_ERROR("nodecolumn'x'", frame.set("x", at::rand({2})));
  EXPECT_FALSE(frame.contains("x"));
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
  EXPECT_ERROR("nodecolumn'x'ismissing;thereare:none", frame.at("x"));
  frame["label"] = at::zeros({30});
  frame["feat"] = at::zeros({30});
  const std::string text = "nodecolumn'x'ismissing;thereare:feat,label";
  EXPECT_ERROR(text, frame.at("x"));
  EXPECT_ERROR(text, static_cast<void>(std::as_const(frame)["x"]));
  EXPECT_ERROR(text, frame.erase("x"));
  frame["x"];  // accessed, not assigned
  EXPECT_ERROR(text, frame.at("x"));
}

struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return 2 * x;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list grads) {
    return {2 * grads[0]};
  }
};

TEST(Frame, every_use_of_a_missing_column_but_assignment_is_an_error_that_lists_the_columns) {
  Frame frame = nodes(3);
  frame["label"] = at::zeros({3});
  frame["feat"] = at::rand({3, 2});
  const at::Tensor y = at::rand({3, 2});
  const at::Tensor copy = frame["fet"];
  const std::vector<std::pair<const char*, std::function<void(const at::Tensor&)>>> uses = {
      {"sizes", [](const at::Tensor& x) { static_cast<void>(x.sizes()); }},
      {"size", [](const at::Tensor& x) { static_cast<void>(x.size(1)); }},
      {"dim", [](const at::Tensor& x) { static_cast<void>(x.dim()); }},
      {"numel", [](const at::Tensor& x) { static_cast<void>(x.numel()); }},
      {"device", [](const at::Tensor& x) { static_cast<void>(x.device()); }},
      {"options", [](const at::Tensor& x) { static_cast<void>(x.options()); }},
      {"layout", [](const at::Tensor& x) { static_cast<void>(x.layout()); }},
      {"is_contiguous", [](const at::Tensor& x) { static_cast<void>(x.is_contiguous()); }},
      {"strides", [](const at::Tensor& x) { static_cast<void>(x.strides()); }},
      {"[]", [](const at::Tensor& x) { static_cast<void>(x[0]); }},
      {"to", [](const at::Tensor& x) { static_cast<void>(x.to(at::kFloat)); }},
      {"nonzero", [](const at::Tensor& x) { static_cast<void>(x.nonzero()); }},
      {"mul_", [](const at::Tensor& x) { static_cast<void>(x.mul_(2)); }},
      {"detach", [](const at::Tensor& x) { static_cast<void>(x.detach()); }},
      {"variable_data", [](const at::Tensor& x) { static_cast<void>(x.variable_data()); }},
      {"second operand", [&](const at::Tensor& x) { static_cast<void>(y + x); }},
      {"list",
       [&](const at::Tensor& x) {
         static_cast<void>(at::cat({y, x}));
       }},
      {"index", [&](const at::Tensor& x) { static_cast<void>(y.index({x})); }},
      {"source", [&](const at::Tensor& x) { y.copy_(x); }},
      {"function", [](const at::Tensor& x) { static_cast<void>(Doubled::apply(x)); }},
      {"print", [](const at::Tensor& x) { std::ostringstream() << x; }},
      {"set", [&](const at::Tensor& x) { frame.set("new", x); }},
  };
  const std::string text = "nodecolumn'fet'ismissing;thereare:feat,label";
  for (const auto& [name, use] : uses) {
    EXPECT_ERROR(text, use(frame["fet"])) << name;
    EXPECT_ERROR(text, use(copy)) << name << " of a copy";
  }
  {
    const c10::InferenceMode inference;
    EXPECT_ERROR(text, frame["fet"].sum());
  }
  EXPECT_EQ(frame.names(), Names({"feat", "label"}));
  EXPECT_EQ(frame.to(at::kCPU).names(), Names({"feat", "label"}));
  EXPECT_EQ(frame.rows(ids({0})).names(), Names({"feat", "label"}));
}

TEST(Frame, a_missing_column_can_be_assigned) {
  Frame frame = nodes(3);
  const at::Tensor h = at::rand({3, 2}).requires_grad_();
  EXPECT_ERROR("nodecolumn'h'ismissing", frame["h"].sum());
  at::Tensor& column = frame["h"];
  frame["h"] = h;
  EXPECT_TRUE(column.is_same(h));
  EXPECT_TRUE(frame.contains("h"));
  EXPECT_TRUE(at::equal(frame["h"].sum(), h.sum()));
  EXPECT_TRUE(Doubled::apply(frame["h"]).requires_grad());

  const at::Tensor moved = std::move(frame["h"]);
  EXPECT_TRUE(moved.is_same(h));
  EXPECT_FALSE(frame.contains("h"));
  EXPECT_ERROR("nodecolumn'h'ismissing", frame["h"].sum());
}

TEST(Frame, methods_of_a_column_work_on_its_own_memory) {
  Frame frame = nodes(2);
  const at::Tensor h = at::ones({2, 2});
  frame["h"] = h;
  frame["h"].mul_(2);
  frame["h"][0] = 5;
  EXPECT_EQ(values(h), values(ids({5, 5, 2, 2})));
  auto rows = frame["h"];
  rows = rows + 1;  // a new tensor
  EXPECT_TRUE(frame["h"].is_same(h));
}

TEST(Frame, column_of_another_number_of_rows_is_an_error_when_read) {
  Frame frame = nodes();
  frame["h"] = at::zeros({100, 30});
  EXPECT_ERROR("nodecolumn'h':expected30rows,got100", frame.at("h"));
  frame["h"] = at::zeros({});
  EXPECT_ERROR("nodecolumn'h':expected30rows,gotascalar", frame.at("h"));
  EXPECT_EQ(std::as_const(frame)["h"].dim(), 0);  // [] checks nothing
}

TEST(Frame, column_on_another_device_is_an_error_when_read) {
  Frame frame("edge", 3, at::kCPU);
  frame["w"] = on_meta(3);
  EXPECT_ERROR("edgecolumn'w':expectedoncpu,gotonmeta", frame.at("w"));
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
    EXPECT_ERROR(text, frame.update(columns));
    EXPECT_TRUE(frame.columns().empty());
  }
}

TEST(Frame, pop_removes_a_column_and_returns_it) {
  Frame frame = nodes(1);
  const at::Tensor h = at::zeros({1});
  frame["h"] = h;
  EXPECT_TRUE(frame.pop("h").is_same(h));
  EXPECT_FALSE(frame.contains("h"));
  EXPECT_ERROR("nodecolumn'h'ismissing", frame.pop("h"));
}

TEST(Frame, update_rows_writes_these_rows_and_keeps_the_others) {
  for (const DTypeInfo& dtype : dtypes()) {
    SCOPED_TRACE(dtype.name);
    Frame frame = nodes(3);
    const at::Tensor old = numbers({1, 2, 3}, dtype.scalar);
    frame["a"] = old;
    frame["other"] = at::zeros({3});
    const Columns columns = {{"a", numbers({8, 9}, dtype.scalar)},
                             {"new", numbers({4, 5, 6, 7}, dtype.scalar).view({2, 2})}};
    frame.update_rows(ids({2, 0}), columns);
    EXPECT_EQ(values(frame.at("a")), values(ids({9, 2, 8})));
    EXPECT_EQ(values(frame.at("new")), values(ids({6, 7, 0, 0, 4, 5})));
    EXPECT_EQ(frame.at("new").sizes(), at::IntArrayRef({3, 2}));
    EXPECT_EQ(frame.at("a").scalar_type(), dtype.scalar);
    EXPECT_EQ(frame.at("new").scalar_type(), dtype.scalar);
    EXPECT_EQ(values(old), values(ids({1, 2, 3})));  // never in place
    EXPECT_TRUE(frame.contains("other"));
  }
}

TEST(Frame, update_rows_takes_a_mask_and_ids_of_either_width) {
  for (const at::Tensor& rows :
       {ids({0, 2}), ids({0, 2}).to(at::kInt), ids({1, 0, 1}).to(at::kBool)}) {
    Frame frame = nodes(3);
    frame.update_rows(rows, {{"a", ids({5, 6})}});
    EXPECT_EQ(values(frame.at("a")), values(ids({5, 0, 6})));
  }
}

TEST(Frame, update_rows_passes_gradients_to_old_and_new_rows) {
  Frame frame = nodes(3);
  const at::Tensor old = leaf(at::ones({3})), rows = leaf(at::ones({1}));
  frame["a"] = old;
  frame.update_rows(ids({1}), {{"a", rows}});
  (frame.at("a") * numbers({1, 2, 3}, at::kFloat)).sum().backward();
  EXPECT_EQ(values(old.grad()), values(ids({1, 0, 3})));
  EXPECT_EQ(values(rows.grad()), values(ids({2})));
}

TEST(Frame, update_rows_with_wrong_rows_or_columns_changes_nothing) {
  Frame frame = nodes(3);
  frame["b"] = at::zeros({3, 2});
  const auto run = [&](const at::Tensor& rows, const at::Tensor& column) {
    const Columns columns = {{"a", at::zeros({2})}, {"b", column}};
    return error_of([&] { frame.update_rows(rows, columns); });
  };
  const at::Tensor good = ids({0, 1});
  EXPECT_TRUE(mentions(run(good, at::zeros({2})),
                       "nodecolumn'b':expectedrowsasthoseoffloat32[3,2],gotfloat32[2]"));
  EXPECT_TRUE(mentions(run(good, at::zeros({2, 2}, at::kHalf)), "gotfloat16[2,2]"));
  EXPECT_TRUE(mentions(run(good, at::zeros({3, 2})), "nodecolumn'b':expected2rows,got3"));
  EXPECT_TRUE(mentions(run(good, at::Tensor()), "gotanundefinedtensor"));
  EXPECT_TRUE(mentions(run(good, at::zeros({2, 2}).to(at::kMeta)), "expectedoncpu,gotonmeta"));
  EXPECT_TRUE(mentions(run(ids({1, 1}), at::zeros({2, 2})),
                       "nodeframeupdate_rows:expecteddistinctids,got1morethanonce"));
  EXPECT_TRUE(mentions(run(ids({0, 3}), at::zeros({2, 2})), "expectedidsin[0,3),got3"));
  EXPECT_EQ(frame.names(), Names({"b"}));
}

TEST(FrameRows, are_all_rows_or_those_of_the_ids_gathered_when_asked_for) {
  Frame frame = nodes(4);
  const at::Tensor h = ids({10, 11, 12, 13});
  frame["h"] = h;
  const FrameRows all = frame;
  EXPECT_EQ(all.size(), 4);
  EXPECT_TRUE(all.at("h").is_same(h));
  EXPECT_EQ(values(all.ids()), values(ids({0, 1, 2, 3})));
  const FrameRows some(frame, ids({3, 0, 2}));
  EXPECT_EQ(some.size(), 3);
  EXPECT_EQ(values(some.at("h")), values(ids({13, 10, 12})));
  EXPECT_EQ(values(some.ids()), values(ids({3, 0, 2})));
  EXPECT_EQ(values(some.pick(ids({2, 0})).at("h")), values(ids({12, 13})));
  EXPECT_EQ(values(all.pick(ids({1})).at("h")), values(ids({11})));
  EXPECT_ERROR("nodecolumn'x'ismissing;thereare:h", some.at("x"));
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

TEST(Frame, rows_takes_a_mask) {
  Frame frame = nodes(3);
  frame["a"] = ids({10, 11, 12});
  EXPECT_EQ(values(frame.rows(ids({1, 0, 1}).to(at::kBool)).at("a")), values(ids({10, 12})));
  EXPECT_ERROR("nodeframerows:expectedidsasamaskof3entries,gotbool[2]",
               frame.rows(ids({1, 0}).to(at::kBool)));
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
  EXPECT_ERROR("nodeframerows:expectedidsin[0,3),got3atposition1", frame.rows(ids({0, 3})));
  EXPECT_ERROR("expectedidstobeanintegervector,gotfloat32[2]", frame.rows(at::zeros({2})));
  frame["h"] = at::zeros({4});
  EXPECT_ERROR("'h':expected3rows,got4", frame.rows(ids({0})));
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
  EXPECT_ERROR("expectedidsoncuda:", moved.rows(ids({1})));
}

TEST(Frame, a_row_that_is_picked_often_gets_its_whole_gradient_in_16_bits) {
  for (const DTypeInfo& dtype : narrow_dtypes()) {
    Frame frame = nodes(2);
    frame["a"] = at::ones({2}, on_device(dtype.scalar)).requires_grad_();
    frame.rows(at::zeros({1000}, on_device(at::kLong))).at("a").sum().backward();
    EXPECT_EQ(values(frame.at("a").grad()), values(numbers({1000, 0}))) << dtype.name;
  }
}

TEST(Frame, sparse_columns_are_kept_but_their_rows_are_not_gathered) {
  Frame frame = nodes(3);
  frame.set("x", at::eye(3).to_sparse_csr());
  EXPECT_EQ(frame.to(at::kCPU).at("x").layout(), at::kSparseCsr);
  EXPECT_ERROR(
      "column'x':expectedastridedtensortogatherrowsof,gotsparsefloat32[3,3];"
      "convertitwith.to_dense()",
      frame.rows(ids({0, 2})));
  EXPECT_ERROR("gotfloat32[1,3];convertitwith.to_dense()",
               frame.update_rows(ids({0}), {{"x", at::ones({1, 3})}}));
}

TEST(Frame, impossible_sizes_and_devices_are_errors) {
  EXPECT_ERROR("nodeframe:expectednum_rows>=0,got-1", nodes(-1));
  EXPECT_ERROR("edgeframe:expectedaCPUorCUDAdevice,gotmeta", Frame("edge", 1, at::kMeta));
  EXPECT_ERROR("gotmeta", nodes().to(at::kMeta));
}

}  // namespace
}  // namespace mezzo::test
