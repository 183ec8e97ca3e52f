
#include "data/source/source_reader.h"

namespace mezzo {
namespace {

using namespace mezzo::test;

class CsvFolder : public SourceFolder {
 protected:
  CsvFolder() {
    write("edges.csv", "src,dst\n5,2\n2,9\n5,2\n9,9\n");
    write("nodes.csv", "id,label,split,f0,f1\n2,1,train,1,2\n5,0,val,3,4.5\n9,,,5,6\n");
  }
};

TEST_F(CsvFolder, is_read_with_its_ids_in_ascending_order) {
  const Dataset data = read();
  EXPECT_EQ(data.name, "set");
  EXPECT_EQ(data.num_nodes, 3);
  EXPECT_EQ(data.num_classes, 2);
  EXPECT_EQ(edges_of(data), (Edges{{1, 0}, {0, 2}, {1, 0}, {2, 2}}));  // unchanged
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{1, 0, -1}));
  EXPECT_EQ(floats_of(data.features), (std::vector<float>{1, 2, 3, 4.5F, 5, 6}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 0, 0}));
  EXPECT_EQ(integers_of(data.val_masks), (std::vector<std::int64_t>{0, 1, 0}));
  EXPECT_EQ(integers_of(data.test_masks), (std::vector<std::int64_t>{0, 0, 0}));
}

TEST_F(CsvFolder, labels_that_are_no_integers_are_numbers) {
  write("nodes.csv", "id,label,split,f0\n2,1.5,train,1\n5,-2,val,3\n9,,,5\n");
  const Dataset data = read();
  EXPECT_EQ(data.task().labels, LabelKind::kNumbers);
  EXPECT_EQ(data.metric, Metric::kR2);
  EXPECT_EQ(data.num_classes, 1);
  EXPECT_EQ(data.labels.sizes(), (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(floats_of(data.labels.nan_to_num(99)), (std::vector<float>{1.5F, -2, 99}));
  EXPECT_EQ(integers_of(data.has_label()), (std::vector<std::int64_t>{1, 1, 0}));
}

TEST_F(CsvFolder, the_task_says_whether_integers_are_numbers) {
  const Dataset data = load_dataset(root(), {.task = Task{.labels = LabelKind::kNumbers}});
  EXPECT_EQ(floats_of(data.labels.nan_to_num(99)), (std::vector<float>{1, 0, 99}));
  EXPECT_THROWS(InvalidArgument, test::fragments("task", "node-class"),
                load_dataset(root(), {.task = Task{.labels = LabelKind::kMultiLabel}}));
  write("nodes.csv", "id,label,f0\n2,0.5,1\n5,0,2\n9,0,3\n");
  EXPECT_THROWS(IoError, test::fragments("nodes.csv:2: ", "0.5"),
                load_dataset(root(), {.task = Task{.labels = LabelKind::kClass}}));
  write("nodes.csv", "id,label,f0\n2,cat,1\n5,dog,2\n9,cat,3\n");
  EXPECT_THROWS(IoError, "cat",
                load_dataset(root(), {.task = Task{.labels = LabelKind::kNumbers}}));
}

TEST_F(CsvFolder, lines_in_any_order_give_the_same) {
  const Dataset expected = read();
  write("nodes.csv", "id,label,split,f0,f1\r\n9,,,5,6\r\n2, 1, train, 1, 2\r\n5,0,val,3,4.5\r\n");
  const Dataset data = read();
  EXPECT_TRUE(at::equal(data.features, expected.features));
  EXPECT_TRUE(at::equal(data.labels, expected.labels));
  EXPECT_TRUE(at::equal(data.train_masks, expected.train_masks));
  EXPECT_EQ(edges_of(data), edges_of(expected));
}

TEST_F(CsvFolder, neither_split_nor_features_nor_nodes_are_needed) {
  write("nodes.csv", "id,label\n2,1\n5,0\n9,0\n");
  const Dataset data = read();
  EXPECT_EQ(data.num_features(), 0);
  EXPECT_EQ(data.split(0).train.sum().item<std::int64_t>(), 1);  // 60 % of three, at random
  folder_.remove("set/nodes.csv");
  const Dataset bare = read_graph(root());
  EXPECT_EQ(bare.num_nodes, 3);
  EXPECT_EQ(edges_of(bare), edges_of(data));
}

TEST_F(CsvFolder, features_without_any_label_are_data_without_labels) {
  for (const char* nodes :
       {"id,label,f0\n2,,1\n5,,2\n9,,3\n", "id,label,split,f0\n2,,train,1\n5,,,2\n9,nan,,3\n"}) {
    write("nodes.csv", nodes);
    EXPECT_THROWS(IoError, "no labels", read());
    const Dataset data = read_graph(root());
    EXPECT_EQ(data.num_classes, 0);
    EXPECT_FALSE(data.labels.defined());
    EXPECT_EQ(data.num_splits(), 0);
    EXPECT_EQ(floats_of(data.features), (std::vector<float>{1, 2, 3}));
  }
}

TEST_F(CsvFolder, either_file_may_be_packed) {
  const Dataset expected = read();
  for (const char* name : {"edges.csv", "nodes.csv"}) {
    std::ifstream file(folder_.path(std::string("set/") + name));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    folder_.remove(std::string("set/") + name);
    write(std::string(name) + ".gz", gzip(text));
    const Dataset data = read();
    EXPECT_EQ(edges_of(data), edges_of(expected));
    EXPECT_TRUE(at::equal(data.features, expected.features));
    EXPECT_TRUE(at::equal(data.labels, expected.labels));
  }
}

TEST_F(CsvFolder, that_changes_while_it_is_read_is_an_io_error) {
  const std::string head = "id,label,f0\n";
  const auto refused_features = [&](const std::string& before, const std::string& after) {
    write("nodes.csv", head + before);
    const std::unique_ptr<data::GraphSource> source = data::open_source(root(), {});
    source->labels();
    source->header();
    write("nodes.csv", after);
    return throws<IoError>([&] { source->features([](const at::Tensor& /*rows*/) {}); },
                           {"nodes.csv", "has changed"});
  };
  const std::string in_order = "2,0,1\n5,0,2\n9,0,3\n", mixed = "9,0,3\n5,0,2\n2,0,1\n";
  EXPECT_TRUE(refused_features(in_order, head + mixed));
  EXPECT_TRUE(refused_features(mixed, head + "9,0,3\n7,0,2\n2,0,1\n"));
  EXPECT_TRUE(refused_features(mixed, head + "9,0,3\n2,0,1\n"));
  write("nodes.csv", head + in_order);
  folder_.remove("set/nodes.csv");
  write("edges.csv", "2,5\n");
  const std::unique_ptr<data::GraphSource> bare = data::open_source(root(), {});
  bare->header();
  write("edges.csv", "2,6\n");
  EXPECT_THROWS(IoError, fragments("edges.csv:1: ", "has changed"),
                bare->edges([](const at::Tensor& /*src*/, const at::Tensor& /*dst*/) {}));
}

TEST_F(CsvFolder, faults_of_the_edges_are_io_errors_with_their_line) {
  EXPECT_TRUE(refused("edges.csv", "2,5\n2,5,1\n", {"edges.csv:2: ", "got 3 columns"}));
  EXPECT_TRUE(refused("edges.csv", "from,to\n2,5\n",
                      {"edges.csv:1: ", "--src and --dst", "the header is 'from,to'"}));
  EXPECT_TRUE(refused("edges.csv", "src,dst\n2,5,1\n", {"edges.csv:2: ", "got 3 columns"}));
  EXPECT_TRUE(refused("edges.csv", "1,2,3\n", {"edges.csv:1: ", "got 3"}));
  EXPECT_TRUE(refused("edges.csv", "src,src,dst\n2,5,1\n", {"two columns 'src'"}));
  EXPECT_TRUE(refused("edges.csv", "src,dst\n2,x\n", {"edges.csv:2: ", "node x is not in"}));
  EXPECT_TRUE(refused("edges.csv", "2,5\n2,3\n", {"edges.csv:2: ", "node 3 is not in nodes.csv"}));
  EXPECT_TRUE(refused("edges.csv", "2,-5\n", {"edges.csv:1: ", "negative"}));
  EXPECT_TRUE(refused("edges.csv", "src,dst\n2,5\n2,\n", {"edges.csv:3: ", "got '2' and ''"}));
}

TEST_F(CsvFolder, faults_of_the_nodes_are_io_errors_with_their_line) {
  const auto nodes = [](const std::string& lines) { return "id,label,split,f0\n" + lines; };
  EXPECT_TRUE(refused("nodes.csv", "", {"nodes.csv", "empty"}));
  EXPECT_TRUE(refused("nodes.csv", "node,class\n",
                      {"nodes.csv:1: ", "--id and --label", "the header is 'node,class'"}));
  EXPECT_TRUE(
      refused("nodes.csv", ",id,label,f\n0,2,0,1\n", {"nodes.csv:1: ", "column 1 has no name"}));
  EXPECT_TRUE(refused("nodes.csv", nodes(""), {"nodes.csv", "no nodes"}));
  EXPECT_TRUE(refused("nodes.csv", nodes("2,0,train\n"), {"nodes.csv:2: ", "3 columns"}));
  EXPECT_TRUE(refused("nodes.csv", nodes("2,\"0,train,1\n"),
                      {"nodes.csv:2: ", "closing quote in the field \"0;"}));
  EXPECT_TRUE(refused("nodes.csv", nodes("2,0,train,x\n5,0,,1\n9,0,,1\n"),
                      {"nodes.csv:2: ", "'x'", "column 4 'f0'"}));
  EXPECT_TRUE(
      refused("nodes.csv", nodes("2,0,,inf\n5,0,,1\n9,0,,1\n"), {"nodes.csv:2: ", "finite"}));
  EXPECT_TRUE(
      refused("nodes.csv", nodes("2,0,dev,1\n5,0,,1\n9,0,,1\n"), {"nodes.csv:2: ", "'dev'"}));
  EXPECT_TRUE(refused("nodes.csv", nodes("2,0,,1\n5,0,,1\n2,0,,1\n"), {"node 2 occurs twice"}));
  EXPECT_TRUE(refused("nodes.csv", "id,label\n2,0\n5,\n9,0\n", {"node 1 has no label"}));
}

TEST_F(CsvFolder, columns_may_have_other_names_and_any_order) {
  const Dataset expected = read();
  write("edges.csv", "when,to,from\n1,2,5\n2,9,2\n3,2,5\n4,9,9\n");
  write("nodes.csv", "f0,split,class,node,f1\n5,,,9,6\n1,train,1,2,2\n3,valid,0,5,4.5\n");
  const Dataset data = read({.csv = {.id = "node", .label = "class", .src = "from", .dst = "to"}});
  EXPECT_EQ(edges_of(data), edges_of(expected));
  EXPECT_TRUE(at::equal(data.features, expected.features));
  EXPECT_TRUE(at::equal(data.labels, expected.labels));
  EXPECT_TRUE(at::equal(data.val_masks, expected.val_masks));
}

TEST_F(CsvFolder, semicolons_tabs_and_quotes_are_read) {
  const Dataset expected = read();
  write("edges.csv", "\"source\";\"target\"\n5;2\n2;9\n\"5\";2\n9;9\n");
  write("nodes.csv",
        "id\tlabel\tsplit\tf0\tf1\n2\t1\ttrain\t1\t2\n5\t0\tval\t3\t4.5\n9\t\t\t5\t6\n");
  const Dataset data = read();
  EXPECT_EQ(edges_of(data), edges_of(expected));
  EXPECT_TRUE(at::equal(data.features, expected.features));
  EXPECT_TRUE(at::equal(data.labels, expected.labels));
  write("edges.csv", "5\t2\n2\t9\n5\t2\n9\t9\n");
  EXPECT_EQ(edges_of(read()), edges_of(expected));
}

TEST_F(CsvFolder, labels_that_are_words_are_classes_with_names) {
  write("nodes.csv", "id,label,split\n2,theory,train\n5,agents,val\n9,theory,test\n");
  const Dataset data = read();
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"agents", "theory"}));
  EXPECT_EQ(data.num_classes, 2);
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{1, 0, 1}));
  write("nodes.csv", "id,label,split\n2,10,train\n5,nan,\n9,none,test\n");  // one word: all are
  const Dataset mixed = read();
  EXPECT_EQ(mixed.class_names, (std::vector<std::string>{"10", "none"}));
  EXPECT_EQ(integers_of(mixed.labels), (std::vector<std::int64_t>{0, kNoLabel, 1}));
}

TEST_F(CsvFolder, cells_without_a_value_are_no_labels_and_no_features) {
  for (const char* missing : {"", "NA", "nan", "NaN", "\"\""}) {
    const std::string cell = missing;
    write("nodes.csv", "id,label,split\n2,3,train\n5," + cell + ",\n9,0,test\n");
    const Dataset numbers = read();
    EXPECT_TRUE(numbers.class_names.empty()) << cell;
    EXPECT_EQ(numbers.num_classes, 4) << cell;
    EXPECT_EQ(integers_of(numbers.labels), (std::vector<std::int64_t>{3, kNoLabel, 0})) << cell;
    write("nodes.csv", "id,label,split\n2,b,train\n5," + cell + ",\n9,a,test\n");
    EXPECT_EQ(read().class_names, (std::vector<std::string>{"a", "b"})) << cell;
    EXPECT_EQ(integers_of(read().labels), (std::vector<std::int64_t>{1, kNoLabel, 0})) << cell;
    EXPECT_TRUE(refused("nodes.csv", "id,label,age,size\n2,0,1,2\n5,0,3," + cell + "\n9,0,5,6\n",
                        {"nodes.csv:3: ", "column 4 'size'", "got no value"}));
  }
}

TEST_F(CsvFolder, ids_that_are_words_are_numbered_in_their_order) {
  write("edges.csv", "src,dst\nbob,10\n10,alice\nbob,bob\n");
  write("nodes.csv", "id,label,f\nbob,0,1\nalice,1,2\n10,1,3\n");
  const Dataset data = read();  // 10, alice, bob
  EXPECT_EQ(edges_of(data), (Edges{{2, 0}, {0, 1}, {2, 2}}));
  EXPECT_EQ(floats_of(data.features), (std::vector<float>{3, 2, 1}));
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{1, 1, 0}));
  EXPECT_TRUE(refused("edges.csv", "src,dst\nbob,carol\n", {"node carol is not in nodes.csv"}));
  EXPECT_TRUE(
      refused("nodes.csv", "id,label\nbob,0\n10,0\nbob,1\nalice,1\n", {"bob occurs twice"}));
  EXPECT_TRUE(refused("nodes.csv", "id,label\nbob,0\n,1\n", {"nodes.csv:3: ", "without an id"}));
  folder_.remove("set/nodes.csv");
  EXPECT_EQ(edges_of(read_graph(root())), edges_of(data));
}

TEST_F(CsvFolder, other_columns_of_edges_are_left_out_on_request_only) {
  const std::string weighted = "src,dst,weight\n5,2,1\n2,9,0.5\n";
  EXPECT_TRUE(refused(
      "edges.csv", weighted,
      {"edges.csv:1: ", "no columns but node ids", "--weight", "--src", "'src,dst,weight'"}));
  write("edges.csv", weighted);
  EXPECT_EQ(edges_of(read({.csv = {.src = "src", .dst = "dst"}})), (Edges{{1, 0}, {0, 2}}));
}

TEST_F(CsvFolder, edge_weights_are_a_column_with_a_name) {
  write("edges.csv", "src,w,dst\n5,0.5,2\n2,1,9\n5,-3,2\n9,2e3,9\n");
  const Dataset data = read({.csv = {.weight = "w"}});
  EXPECT_EQ(edges_of(data), (Edges{{1, 0}, {0, 2}, {1, 0}, {2, 2}}));
  EXPECT_EQ(data.edge_weights.scalar_type(), at::kFloat);
  EXPECT_EQ(floats_of(data.edge_weights), (std::vector<float>{0.5F, 1, -3, 2000}));
  EXPECT_FALSE(read({.csv = {.src = "src", .dst = "dst"}}).edge_weights.defined());
  const auto fails = [&](const std::string& edges, const CsvColumns& csv,
                         const std::vector<std::string>& fragments) {
    write("edges.csv", edges);
    return throws<IoError>([&] { read({.csv = csv}); }, fragments);
  };
  const CsvColumns w = {.weight = "w"};
  EXPECT_TRUE(fails("src,dst,w,t\n5,2,1,1\n", w, {"edges.csv:1: ", "ids and weights", "--src"}));
  EXPECT_TRUE(fails("src,dst\n5,2\n", w, {"edges.csv:1: ", "no column 'w'"}));
  EXPECT_TRUE(fails("src,dst\n5,2\n", {.weight = "src"}, {"--weight", "'src'"}));
  EXPECT_TRUE(fails("5,2\n", w, {"edges.csv:1: ", "--weight", "'5,2'"}));
  EXPECT_TRUE(fails("src,dst,w\n5,2,\n", w, {"edges.csv:2: "}));
  EXPECT_TRUE(fails("src,dst,w\n5,2,x\n", w, {"edges.csv:2: ", "'x'"}));
  EXPECT_TRUE(fails("src,dst,w\n5,2,nan\n", w, {"edges.csv:2: ", "edge weight nan"}));
  write("edges.csv", "src,dst,w,t\n5,2,4,1\n");
  const Dataset rest = read({.csv = {.src = "src", .dst = "dst", .weight = "w"}});
  EXPECT_EQ(floats_of(rest.edge_weights), (std::vector<float>{4}));
}

TEST_F(CsvFolder, edges_may_have_labels_a_split_and_features) {
  write("edges.csv",
        "src,dst,label,split,f0,f1\n5,2,spam,train,1,2\n2,9,,,3,4\n9,9,ham,test,5,6\n");
  write("nodes.csv", "id,f0\n2,1\n5,2\n9,3\n");
  const Task edges{.target = TaskTarget::kEdge};
  const Dataset data = read();
  EXPECT_EQ(data.task(), edges);
  EXPECT_EQ(data.tasks, std::vector<Task>{edges});
  EXPECT_EQ(edges_of(data), (Edges{{1, 0}, {0, 2}, {2, 2}}));
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"ham", "spam"}));
  EXPECT_EQ(integers_of(data.labels), (std::vector<std::int64_t>{1, -1, 0}));
  EXPECT_EQ(integers_of(data.train_masks), (std::vector<std::int64_t>{1, 0, 0}));
  EXPECT_EQ(floats_of(data.edge_features), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(floats_of(data.features), (std::vector<float>{1, 2, 3}));
  // For a prediction neither labels nor their column are needed.
  write("edges.csv", "src,dst,f0\n5,2,1\n");
  const Dataset bare = read_source(root(), {.labels_optional = true, .task = edges});
  EXPECT_EQ(floats_of(bare.edge_features), (std::vector<float>{1}));
  EXPECT_FALSE(bare.labels.defined());
  write("edges.csv", "from,to,kind,w\n5,2,0.5,3\n2,9,1,4\n");
  const CsvColumns names = {.label = "kind", .src = "from", .dst = "to", .weight = "w"};
  const Dataset named = read({.csv = names});
  EXPECT_EQ(name_of(Tasks{}, named.task()), "edge-regression");
  EXPECT_EQ(floats_of(named.edge_weights), (std::vector<float>{3, 4}));
  EXPECT_FALSE(named.edge_features.defined());
}

TEST_F(CsvFolder, the_task_chooses_between_labels_of_nodes_and_edges) {
  write("edges.csv", "src,dst,label,f0\n5,2,1,7\n2,9,0,8\n");
  const Task edges{.target = TaskTarget::kEdge};
  EXPECT_THROWS(InvalidArgument, test::fragments("several tasks", "node-class, edge-class"),
                read());
  EXPECT_EQ(read_graph(root()).tasks, (std::vector<Task>{Task{}, edges}));
  EXPECT_EQ(integers_of(read({.task = edges}).labels), (std::vector<std::int64_t>{1, 0}));
  const Dataset nodes = read({.task = Task{}});
  EXPECT_EQ(integers_of(nodes.labels), (std::vector<std::int64_t>{1, 0, -1}));
  EXPECT_EQ(floats_of(nodes.edge_features), (std::vector<float>{7, 8}));
  write("nodes.csv", "id,label,f0\n2,,1\n5,,2\n9,,3\n");  // no node has one
  EXPECT_EQ(read().task(), edges);
}

TEST_F(CsvFolder, faults_of_labels_of_edges_are_io_errors_with_their_line) {
  write("nodes.csv", "id,f0\n2,1\n5,2\n9,3\n");
  const auto edges = [&](const std::string& text, const std::string& fault) {
    return refused("edges.csv", text, {"edges.csv", fault});
  };
  EXPECT_TRUE(edges("src,dst,label\n5,2,1\n2,9,\n", "edge 1 has no label"));
  EXPECT_TRUE(edges("src,dst,label\n5,2,1\n2,9,-1\n", ":3: label -1"));
  EXPECT_TRUE(edges("src,dst,label,f\n5,2,1,x\n", ":2: 'x'"));
  EXPECT_TRUE(edges("src,dst,label,f\n5,2,1,\n", ":2: expected a number in column 4 'f'"));
  EXPECT_TRUE(edges("src,dst,label,\n5,2,1,3\n", ":1: column 4 has no name"));
  EXPECT_TRUE(edges("src,dst,label,split\n5,2,1,dev\n", ":2: split 'dev'"));
  EXPECT_TRUE(edges("src,dst,label,label\n5,2,1,2\n", "two columns 'label'"));
  EXPECT_TRUE(edges("src,dst,label\n5,2,1,2\n", ":2: expected two node ids in 3 columns, got 4"));
}

TEST_F(CsvFolder, names_of_columns_must_fit_the_header) {
  const auto fails = [&](const CsvColumns& csv, const std::vector<std::string>& fragments) {
    return throws<IoError>([&] { read({.csv = csv}); }, fragments);
  };
  EXPECT_TRUE(fails({.label = "venue"}, {"no column 'venue'", "'id,label,split,f0,f1'"}));
  EXPECT_TRUE(fails({.src = "a"}, {"edges.csv:1: ", "no column 'a'", "'src,dst'"}));
  EXPECT_TRUE(fails({.id = "label"}, {"the same column 'label'"}));
  write("edges.csv", "5,2\n");
  EXPECT_TRUE(fails({.src = "src"}, {"edges.csv:1: ", "--src", "'5,2'"}));
  const std::string list = folder_.write("list.txt", "1 2\n");
  EXPECT_THROWS(InvalidArgument, fragments("dataset: ", "CSV folder", list),
                load_dataset(list, {.labels_optional = true, .csv = {.src = "a"}}));
}

}  // namespace
}  // namespace mezzo
