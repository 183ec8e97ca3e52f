
#include "data/source/source_reader.h"

namespace mezzo::test {
namespace {

/// One file of a bare graph.
class EdgeFile : public testing::Test {
 protected:
  Dataset read(const std::string& name, const std::string& bytes) const {
    return read_graph(folder_.write(name, bytes));
  }

  testing::AssertionResult refused(const std::string& name, const std::string& bytes,
                                   const std::vector<std::string>& fragments) const {
    return throws<IoError>([&] { read(name, bytes); }, fragments);
  }

  TempFolder folder_;
};

using SnapFile = EdgeFile;
using MatrixMarketFile = EdgeFile;

const std::string kSnap = "# a comment\n30\t10\n10 30\n\n 10  7 \n10 7\n7 7\n";

TEST_F(SnapFile, ids_are_renumbered_and_edges_are_distinct) {
  const Dataset data = read("web.txt", kSnap);
  EXPECT_EQ(data.name, "web");
  EXPECT_EQ(data.num_nodes, 3);  // 7, 10, 30
  EXPECT_EQ(edges_of(data), (Edges{{1, 0}, {1, 2}, {2, 1}}));
  EXPECT_EQ(data.num_features(), 0);
  EXPECT_FALSE(data.labels.defined());
  EXPECT_EQ(edges_of(read("web.txt.gz", gzip(kSnap))), edges_of(data));
}

TEST_F(SnapFile, percent_signs_begin_comments_too) {
  const std::string text = "% sym unweighted\n%% of another collection\n1 2\n";
  for (const char* name : {"a.txt", "a.edges", "a.tsv"}) {
    EXPECT_EQ(edges_of(read(name, text)), (Edges{{0, 1}})) << name;
  }
}

TEST_F(SnapFile, very_sparse_ids_are_renumbered_too) {
  const Dataset data = read("a.txt", "9000000000000000000 3\n3 4000000000\n");
  EXPECT_EQ(data.num_nodes, 3);
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {2, 0}}));
}

TEST_F(EdgeFile, is_told_by_its_first_lines_where_its_name_says_nothing) {
  const Dataset snap = read("graph.gz", gzip(kSnap));
  EXPECT_EQ(snap.name, "graph");
  EXPECT_EQ(edges_of(snap), (Edges{{1, 0}, {1, 2}, {2, 1}}));
  const Dataset matrix =
      read("m.gz", gzip("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n2 1\n"));
  EXPECT_EQ(matrix.name, "m");
  EXPECT_EQ(edges_of(matrix), (Edges{{1, 0}}));
  for (const char* text : {"", "# no more\n", "some words\n", "1 2 3\n", "1 2.5\n"}) {
    EXPECT_EQ(data::find_format(folder_.write("other.gz", gzip(text))), nullptr) << text;
  }
  for (const char* name : {"graph.edges", "graph.el", "graph.tsv"}) {
    EXPECT_EQ(edges_of(read(name, kSnap)), edges_of(snap)) << name;
  }
  EXPECT_EQ(data::find_format(folder_.write("other.tsv", "a\tb\n")), nullptr);
  EXPECT_TRUE(
      refused("comma.edges", "1,2\n", {"comma.edges:1: ", "two columns of node ids, got 1"}));
  EXPECT_TRUE(refused("weights.el", "# x\n1 2 0.5\n", {"weights.el:2: ", "got 3"}));
  EXPECT_TRUE(refused("empty.edges.gz", gzip(""), {"empty.edges.gz", "no edges"}));
  EXPECT_TRUE(refused("bad.gz", gzip(kSnap).substr(0, 20), {"bad.gz", "truncated"}));
}

TEST_F(EdgeFile, that_changes_while_it_is_read_is_an_io_error) {
  const auto read_changed = [&](const std::string& name, const std::string& before,
                                const std::string& after) {
    const std::string path = folder_.write(name, before);
    const std::unique_ptr<data::GraphSource> source = data::open_source(path, {});
    source->header();
    folder_.write(name, after);
    source->edges([](const at::Tensor& /*src*/, const at::Tensor& /*dst*/) {});
  };
  const std::string banner = "%%MatrixMarket matrix coordinate pattern general\n";
  EXPECT_THROWS(IoError, fragments("a.txt:2: ", "has changed"),
                read_changed("a.txt", "1 2\n", "1 2\n1 3\n"));
  EXPECT_THROWS(IoError, "changed", read_changed("a.txt", "1 2\n", "1 900\n"));
  EXPECT_THROWS(IoError, fragments("a.mtx:2: ", "has changed"),
                read_changed("a.mtx", banner + "2 2 1\n1 2\n", banner + "9 9 1\n1 9\n"));
}

TEST_F(SnapFile, faults_are_io_errors_with_their_line) {
  EXPECT_TRUE(refused("a.txt", "# x\n1 2\n3\n", {"a.txt:3: ", "two columns of node ids, got 1"}));
  EXPECT_TRUE(refused("a.txt", "1 2 3\n", {"a.txt:1: ", "got 3"}));
  EXPECT_TRUE(refused("a.txt", "1 b\n", {"a.txt:1: ", "'b' is not an integer"}));
  EXPECT_TRUE(refused("a.txt", "1 -2\n", {"a.txt:1: ", "-2 is negative"}));
  EXPECT_TRUE(refused("a.txt", "# nothing\n", {"a.txt", "no edges"}));
  const std::string packed = gzip(kSnap);
  EXPECT_TRUE(refused("a.txt.gz", packed.substr(0, packed.size() - 4), {"truncated"}));
}

TEST_F(SnapFile, has_neither_labels_nor_named_splits) {
  const std::string path = folder_.write("a.txt", kSnap);
  EXPECT_THROWS(IoError, "no labels", read_source(path));
  EXPECT_THROWS(IoError, fragments(path + ": ", "no labels"), load_dataset(path));
  EXPECT_THROWS(InvalidArgument, "split: 'x'", read_source(path, {.split = "x"}));
}

TEST_F(MatrixMarketFile, general_matrices_have_one_edge_an_entry) {
  const Dataset data = read("m.mtx",
                            "%%MatrixMarket matrix coordinate real general\n% comment\n\n"
                            "3 3 4\n1 2 0.5\n3 1 -1e2\n2 2 1\n1 3 0\n");
  EXPECT_EQ(data.name, "m");
  EXPECT_EQ(data.num_nodes, 3);
  EXPECT_EQ(edges_of(data), (Edges{{0, 1}, {2, 0}}));  // no self loop, no entry of value 0
}

TEST_F(MatrixMarketFile, symmetric_ones_have_both_directions) {
  const Edges expected = {{0, 1}, {0, 3}, {1, 0}, {3, 0}};
  for (const char* symmetry : {"symmetric", "skew-symmetric"}) {
    const std::string text =
        fmt::format("%%MatrixMarket matrix coordinate pattern {}\n4 4 2\n2 1\n4 1\n", symmetry);
    EXPECT_EQ(edges_of(read("m.mtx", text)), expected);
    EXPECT_EQ(read("m.mtx.gz", gzip(text)).num_nodes, 4);
  }
}

TEST_F(MatrixMarketFile, faults_are_io_errors_with_their_line) {
  const std::string banner = "%%MatrixMarket matrix coordinate integer general\n";
  EXPECT_TRUE(refused("m.mtx", "", {"m.mtx", "empty"}));
  EXPECT_TRUE(refused("m.mtx", "3 3 1\n", {"m.mtx:1: ", "%%MatrixMarket"}));
  EXPECT_TRUE(refused("m.mtx", "%%MatrixMarket matrix array real general\n2 2\n",
                      {"m.mtx:1: ", "'array', expected coordinate"}));
  EXPECT_TRUE(refused("m.mtx", "%%MatrixMarket matrix coordinate complex general\n",
                      {"m.mtx:1: ", "'complex'"}));
  EXPECT_TRUE(refused("m.mtx", "%%MatrixMarket matrix coordinate real hermitian\n",
                      {"m.mtx:1: ", "'hermitian'"}));
  EXPECT_TRUE(refused("m.mtx", banner, {"m.mtx:1", "before the sizes"}));
  EXPECT_TRUE(refused("m.mtx", banner + "2 3 1\n1 1 1\n", {"m.mtx:2: ", "[2, 3]", "square"}));
  EXPECT_TRUE(refused("m.mtx", banner + "9223372036854775807 9223372036854775807 0\n",
                      {"m.mtx:2: ", "at most 2^48"}));
  const std::string huge = banner + "4000000000000 4000000000000 1\n1 2 1\n";
  EXPECT_THROWS(IoError, "m.mtx: it declares 4000000000000 nodes",
                load_dataset(folder_.write("m.mtx", huge), {.labels_optional = true}));
  EXPECT_TRUE(refused("m.mtx", banner + "2 2 1\n0 1 1\n", {"m.mtx:3: ", "(0, 1) is outside"}));
  EXPECT_TRUE(refused("m.mtx", banner + "2 2 1\n1 3 1\n", {"m.mtx:3: ", "(1, 3) is outside"}));
  EXPECT_TRUE(refused("m.mtx", banner + "2 2 1\n1 2\n", {"m.mtx:3: ", "3 columns, got 2"}));
  EXPECT_TRUE(refused("m.mtx", banner + "2 2 2\n1 2 1\n", {"m.mtx:3", "after 1 entries"}));
  EXPECT_TRUE(refused("m.mtx", banner + "2 2 1\n1 2 1\n2 1 1\n", {"m.mtx:4: ", "more entries"}));
}

/// The raw samples; skipped unless MEZZO_SHARED_DATA is their folder.
class SharedDataSources : public testing::Test {
 protected:
  void SetUp() override {
    const char* const folder = std::getenv("MEZZO_SHARED_DATA");
    if (folder == nullptr || *folder == '\0') {
      GTEST_SKIP() << "MEZZO_SHARED_DATA does not name the folder of the shared data sets";
    }
    raw_ = std::string(folder) + "/raw/";
  }

  std::string raw_;
};

TEST_F(SharedDataSources, email_enron_has_its_known_counts) {
  const Dataset data = read_graph(raw_ + "snap/email-Enron.txt.gz");
  EXPECT_EQ(data.name, "email-Enron");
  EXPECT_EQ(data.num_nodes, 36692);
  EXPECT_EQ(data.num_edges(), 367662);
  const at::Tensor forward = data.src * data.num_nodes + data.dst;
  const at::Tensor backward = std::get<0>((data.dst * data.num_nodes + data.src).sort());
  EXPECT_TRUE(at::equal(forward, backward));  // sorted, in both directions
}

TEST_F(SharedDataSources, matrices_have_their_known_counts) {
  const auto counts = [&](const char* name) {
    const Dataset data = read_graph(raw_ + "matrix-market/" + name);
    return std::pair(data.num_nodes, data.num_edges());
  };
  using Counts = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(counts("karate.mtx"), Counts(34, 156));
  EXPECT_EQ(counts("west0067.mtx"), Counts(67, 292));     // 294 entries, 2 on the diagonal
  EXPECT_EQ(counts("jagmesh7.mtx"), Counts(1138, 6312));  // 4294 entries, 1138 on the diagonal
}

}  // namespace
}  // namespace mezzo::test
