#include "mezzo/data/pickle/pickle.h"

#include <ATen/ATen.h>

#include "data/pickle/pickle_writer.h"

namespace mezzo::data {
namespace {

using namespace mezzo::test;
namespace p = mezzo::test::pickle;

testing::AssertionResult array_refused(const std::string& bytes, const std::string& fault) {
  return throws<IoError>([&] { unpickle_array(bytes, "a.y"); }, {"a.y: ", fault});
}

testing::AssertionResult value_refused(const std::string& value, const std::string& fault) {
  return array_refused(p::file(value), fault);
}

testing::AssertionResult csr_refused(const std::string& value, const std::string& fault) {
  return throws<IoError>([&] { unpickle_csr(p::file(value), "a.x"); }, {"a.x: ", fault});
}

testing::AssertionResult graph_refused(const std::string& value, const std::string& fault) {
  return throws<IoError>([&] { unpickle_graph(p::file(value), "a.graph"); }, {"a.graph: ", fault});
}

const p::Csr kMatrix = {2, 3, {0, 2, 3}, {0, 2, 1}, {1, 2, 3}};

TEST(Pickle, an_array_keeps_its_numbers) {
  EXPECT_TRUE(at::equal(unpickle_array(p::file(p::int32_array({2, 2}, {1, -2, 3, 4})), "a"),
                        at::tensor({1, -2, 3, 4}, at::kInt).view({2, 2})));
}

TEST(Pickle, a_csr_matrix_stays_sparse) {
  const at::Tensor matrix = unpickle_csr(p::file(p::csr(kMatrix)), "a");
  EXPECT_EQ(matrix.layout(), at::kSparseCsr);
  EXPECT_EQ(matrix.col_indices().scalar_type(), at::kLong);
  EXPECT_TRUE(
      at::equal(matrix.to_dense(), at::tensor({1.F, 0.F, 2.F, 0.F, 3.F, 0.F}).view({2, 3})));
}

TEST(Pickle, unsorted_and_repeated_columns_are_put_in_order) {
  const at::Tensor matrix =
      unpickle_csr(p::file(p::csr({1, 3, {0, 3}, {2, 0, 2}, {1, 5, 2}})), "a");
  EXPECT_TRUE(at::equal(matrix.col_indices(), at::tensor({0, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(matrix.values(), at::tensor({5.F, 3.F})));
}

TEST(Pickle, a_graph_lists_its_edges) {
  const PickledGraph graph = unpickle_graph(p::file(p::graph({{1, 1}, {}, {0}})), "a");
  EXPECT_EQ(graph.num_nodes, 3);
  EXPECT_EQ(graph.edges,
            (std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 1}, {0, 1}, {2, 0}}));
}

TEST(Pickle, memo_and_small_opcodes_work) {
  // 513 by BININT2, its list put in memo entries 0 and 70000 and fetched twice, 7 by LONG1, 5 by
  // BININT1.
  const std::string value = std::string("}(K\5]q\0(M\1\2\x8a\1\7er\x70\x11\1\0J", 21) +
                            std::string("\6\0\0\0h\0J\7\0\0\0j\x70\x11\1\0u", 17);
  EXPECT_EQ(unpickle_graph(p::file(value), "a").edges,
            (std::vector<std::pair<std::int64_t, std::int64_t>>{
                {5, 513}, {5, 7}, {6, 513}, {6, 7}, {7, 513}, {7, 7}}));
}

TEST(Pickle, evil_names_are_refused_by_name) {
  const std::string call = p::name("os", "system") + p::tuple({p::text("true")}) + "R";
  EXPECT_TRUE(value_refused(call, "the name 'os.system' is refused"));
  for (const auto& [module, member] :
       std::vector<std::pair<std::string, std::string>>{{"__builtin__", "eval"},
                                                        {"builtins", "exec"},
                                                        {"posix", "system"},
                                                        {"numpy", "load"},
                                                        {"numpy.core.multiarray", "fromfile"},
                                                        {"scipy.sparse.csr", "os"},
                                                        {"", ""}}) {
    EXPECT_TRUE(value_refused(p::name(module, member), "is refused")) << module << member;
  }
  EXPECT_TRUE(value_refused("c\x1b[31mos\nsystem\n", "'?[31mos.system'"));
}

TEST(Pickle, other_opcodes_are_refused_by_number) {
  const std::string known = "(.JKMNGQRTUXabcehjqrstu)]}\x80\x81\x85\x86\x87\x88\x89\x8a";
  for (int opcode = 0; opcode < 256; ++opcode) {
    if (known.find(static_cast<char>(opcode)) != std::string::npos) continue;
    EXPECT_TRUE(
        value_refused(std::string(1, static_cast<char>(opcode)) + "aaaa\nbbbb\n", "is refused"))
        << opcode;
  }
}

TEST(Pickle, later_protocols_are_refused) {
  EXPECT_TRUE(array_refused("\x80\x04N.", "protocol 4, expected at most 2"));
}

TEST(Pickle, calls_of_known_names_with_other_arguments_are_refused) {
  EXPECT_TRUE(value_refused(p::name("__builtin__", "list") + ")R", "a call that is neither"));
  EXPECT_TRUE(value_refused(p::name("numpy", "ndarray") + ")R", "a call that is neither"));
  EXPECT_TRUE(value_refused(p::name("numpy", "dtype") + ")R", "a call that is neither"));
  EXPECT_TRUE(value_refused(p::name("numpy", "ndarray") + ")\x81", "expected an empty scipy"));
  EXPECT_TRUE(value_refused(
      p::name("collections", "defaultdict") + p::tuple({p::name("numpy", "dtype")}) + "R",
      "a call that is neither"));
  EXPECT_TRUE(value_refused("N)R", "expected a function"));
  EXPECT_TRUE(value_refused(p::name("numpy", "dtype") + "NR", "expected a tuple"));
}

TEST(Pickle, huge_lengths_are_refused_before_memory_is_asked_for) {
  EXPECT_TRUE(value_refused(std::string("T\xFF\xFF\xFF\x7F", 5) + "a", "truncated"));
  EXPECT_TRUE(value_refused("T\xFF\xFF\xFF\xFF", "negative length"));
  EXPECT_TRUE(value_refused("X\xFF\xFF\xFF\xFF", "truncated"));
  EXPECT_TRUE(value_refused("\x8a\xFF" + std::string(300, 'a'), "more than 64 bits"));
  EXPECT_TRUE(value_refused(p::array(p::dtype("f8"), {2000000000, 2000000000, 2000000000}, ""),
                            "overflows"));
  EXPECT_TRUE(value_refused(p::array(p::dtype("f8"), {2000000000}, ""), "needs 16000000000 bytes"));
}

TEST(Pickle, memo_misuse_is_refused) {
  EXPECT_TRUE(value_refused(std::string("h\0", 2), "memo entry 0 was never set"));
  EXPECT_TRUE(value_refused("j\xFF\xFF\xFF\xFF", "memo entry 4294967295 was never set"));
  EXPECT_TRUE(value_refused("q\1", "the stack is too short"));
  EXPECT_TRUE(value_refused("Nr\xFF\xFF\xFF\xFF", "expected a numpy array"));
}

TEST(Pickle, stack_misuse_is_refused) {
  EXPECT_TRUE(value_refused("", "ends with 0 values"));
  EXPECT_TRUE(value_refused("NN", "ends with 2 values"));
  EXPECT_TRUE(value_refused("N(", "1 marks"));
  EXPECT_TRUE(value_refused("t", "no mark"));
  EXPECT_TRUE(value_refused("\x85", "the stack is too short"));
  EXPECT_TRUE(value_refused("](a", "the stack is too short"));
  EXPECT_TRUE(value_refused("NNa", "expected a list"));
  EXPECT_TRUE(value_refused("N(Ne", "expected a list"));
  EXPECT_TRUE(value_refused("}(Nu", "a key without a value"));
  EXPECT_TRUE(value_refused("](NNu", "expected a dict"));
  EXPECT_TRUE(value_refused("NNb", "has no state"));
}

TEST(Pickle, deep_nesting_and_cycles_are_harmless) {
  constexpr std::size_t kDepth = 1'000'000;
  EXPECT_TRUE(value_refused(std::string(kDepth, ']') + std::string(kDepth - 1, 'a'),
                            "expected a numpy array"));
  EXPECT_TRUE(value_refused("N" + std::string(kDepth, '\x85'), "expected a numpy array"));
  EXPECT_TRUE(value_refused(std::string(kDepth, '('), "marks on the stack"));
  EXPECT_TRUE(value_refused(std::string("]q\0h\0a", 6), "expected a numpy array"));
}

TEST(Pickle, one_list_under_many_keys_cannot_multiply) {
  std::string value = std::string("}(") + p::number(0) + std::string("]q\0(", 4);
  for (int i = 0; i < 1000; ++i) value += "K\1";
  value += "e";
  for (std::int32_t i = 1; i < 1000; ++i) value += p::number(i) + std::string("h\0", 2);
  EXPECT_TRUE(graph_refused(value + "u", "more neighbours than the file has bytes"));
}

TEST(Pickle, arrays_of_other_forms_are_refused) {
  EXPECT_TRUE(value_refused(p::empty_array(), "expected a numpy array"));
  EXPECT_TRUE(value_refused(p::array(p::dtype("O8", "|"), {1}, "12345678"), "Python objects"));
  EXPECT_TRUE(value_refused(p::array(p::dtype("i4", ">"), {1}, "1234"), "big-endian"));
  EXPECT_TRUE(value_refused(p::array(p::dtype("c8"), {1}, "12345678"), "dtype '<c8'"));
  EXPECT_TRUE(value_refused(p::int32_array({-1}, {1}), "negative dimension"));
  EXPECT_TRUE(value_refused(p::int32_array({3}, {1, 2}), "needs 12 bytes of data, got 8"));
  EXPECT_TRUE(value_refused(p::array("N", {1}, "1234"), "expected a dtype"));
  EXPECT_TRUE(value_refused(p::empty_array() + p::tuple({p::number(1)}) + "b", "other than 5"));
  EXPECT_TRUE(value_refused(p::int32_array({1}, {1}) + p::tuple({"N"}) + "b", "built twice"));
  EXPECT_TRUE(value_refused(p::array(p::dtype("i4"), std::vector<std::int64_t>(33, 1), "1234"),
                            "32 dimensions"));
}

TEST(Pickle, matrices_that_contradict_themselves_are_refused) {
  const auto with = [](auto&& change) {
    p::Csr matrix = kMatrix;
    change(matrix);
    return p::csr(matrix);
  };
  EXPECT_TRUE(csr_refused(with([](auto& m) { m.rows = 3; }), "indptr: expected shape [3 + 1]"));
  EXPECT_TRUE(csr_refused(with([](auto& m) { m.rows = -1; }), "not negative"));
  EXPECT_TRUE(csr_refused(with([](auto& m) { m.indptr = {1, 2, 3}; }), "run from 0 to 3"));
  EXPECT_TRUE(csr_refused(with([](auto& m) { m.indptr = {0, 2, 9}; }), "run from 0 to 3"));
  EXPECT_TRUE(csr_refused(with([](auto& m) { m.indptr = {0, 7, 3}; }), "decreases after row 1"));
  EXPECT_TRUE(csr_refused(with([](auto& m) { m.indices[1] = 3; }), "item 1 is 3, outside [0, 3)"));
  EXPECT_TRUE(csr_refused(with([](auto& m) { m.indices[1] = -1; }), "outside [0, 3)"));
  EXPECT_TRUE(csr_refused(with([](auto& m) { m.data.pop_back(); }), "one shape [nnz]"));
  EXPECT_TRUE(csr_refused(p::csr_with(p::dict({})), "no attribute '_shape'"));
  EXPECT_TRUE(csr_refused(p::csr_with(p::dict({{p::text("_shape"), "N"}})), "pair of integers"));
  EXPECT_TRUE(csr_refused(p::csr_with("N"), "expected a dict"));
  EXPECT_TRUE(csr_refused(p::int32_array({1}, {1}), "expected a scipy CSR matrix"));
}

TEST(Pickle, graphs_of_other_forms_are_refused) {
  EXPECT_TRUE(graph_refused("]", "expected a dict"));
  EXPECT_TRUE(graph_refused(p::dict({{p::text("0"), "]"}}), "integers as keys"));
  EXPECT_TRUE(graph_refused(p::dict({{p::number(0), "N"}}), "lists as items"));
  EXPECT_TRUE(graph_refused(p::dict({{p::number(0), "](Ne"}}), "is not an integer"));
  EXPECT_TRUE(graph_refused(p::dict({{p::number(0), "]"}, {p::number(0), "]"}}), "occurs twice"));
}

TEST(Pickle, every_truncation_and_trailing_bytes_are_io_errors) {
  const std::string bytes = p::file(p::csr(kMatrix));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROWS(IoError, "truncated", unpickle_csr(bytes.substr(0, size), "a")) << size;
  }
  EXPECT_THROWS(IoError, "1 bytes after its end", unpickle_csr(bytes + ".", "a"));
}

TEST(Pickle, a_changed_byte_gives_a_matrix_or_an_io_error) {
  const std::string bytes = p::file(p::csr(kMatrix));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    for (const int change : {1, 4, 32, 128, 255}) {
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ change);
      try {
        EXPECT_EQ(unpickle_csr(damaged, "a").dim(), 2);
      } catch (const IoError&) {
      }
    }
  }
}

}  // namespace
}  // namespace mezzo::data
