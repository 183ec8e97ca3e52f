
#include <ATen/ATen.h>

#include "mezzo/data/dataset.h"

#include "support/npy_writer.h"

namespace mezzo::test {
namespace {

/// Sets an environment variable during its lifetime.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~EnvironmentVariable() {
    if (before_) {
      setenv(name_, before_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

const std::string kLicence = "  1 A licence.  \n";

/// Five nouns whose glosses share words with the verb, the adjective and the adverb.
class WordNet : public testing::Test {
 protected:
  WordNet() {
    folder_.write("data.noun", kLicence + nouns(9));
    folder_.write("data.verb",
                  kLicence +
                      "00000010 29 v 02 go 0 run 1 002 + 00000010 n 0101 @ 00000010 v 0000 "
                      "01 + 02 00 | Common; \"it's THE rare-ish COMMON\"  \n");
    folder_.write("data.adj", kLicence +
                                  "00000010 00 a 01 good 0 001 & 00000020 a 0000 | common  \n"
                                  "00000020 44 s 01 fine 0 001 & 00000010 a 0000 | fine  \n");
    folder_.write("data.adv", kLicence + "00000010 02 r 01 well 0 000 | well  \n");
  }

  /// `count` nouns, each pointing at the first (which points at itself), each "a common thing".
  static std::string nouns(int count) {
    std::string lines;
    for (int i = 1; i <= count; ++i) {
      const std::string offset = std::to_string(10 * i);
      lines += std::string(8 - offset.size(), '0') + offset + " 03 n 01 word_" + std::to_string(i) +
               " 0 001 @ 00000010 n 0000 | a common thing (x2)  \n";
    }
    return lines;
  }

  testing::AssertionResult refused(const std::string& name, const std::string& line,
                                   const std::string& fault) const {
    folder_.write(name, kLicence + line);
    return throws<IoError>([&] { load_dataset(folder_.path()); }, {folder_.path(), fault});
  }

  testing::AssertionResult adverb_refused(const std::string& line, const std::string& fault) const {
    return refused("data.adv", line + "\n", "data.adv: line 2: " + fault);
  }

  TempFolder folder_;
};

TEST_F(WordNet, synsets_pointers_and_lexicographer_files_become_a_graph) {
  const Dataset data = load_dataset(folder_.path());
  EXPECT_EQ(data.name, "wordnet");
  EXPECT_EQ(data.num_nodes, 13);
  EXPECT_EQ(data.num_classes, 45);
  EXPECT_EQ(data.class_names[29], "verb.body");
  // Nouns 1 to 8 and the verb (9) point at noun 0; adjectives 10 and 11 at each other.
  EXPECT_EQ(data.num_edges(), 2 * (8 + 1 + 1));
  EXPECT_TRUE(at::equal(data.src.slice(0, -3), at::tensor({9, 10, 11}, at::kLong)));
  EXPECT_TRUE(at::equal(data.dst.slice(0, -3), at::tensor({0, 11, 10}, at::kLong)));
  EXPECT_TRUE(at::equal(data.labels.slice(0, 8), at::tensor({3, 29, 0, 44, 2}, at::kLong)));
}

TEST_F(WordNet, pointers_are_edges_with_classes_if_the_task_has_edges) {
  const Task edges{.target = TaskTarget::kEdge};
  EXPECT_EQ(load_dataset(folder_.path()).tasks, (std::vector<Task>{Task{}, edges}));
  const Dataset data = load_dataset(folder_.path(), {.task = edges});
  EXPECT_EQ(data.task(), edges);
  EXPECT_EQ(data.num_nodes, 13);
  EXPECT_EQ(data.num_classes, 26);
  // Of the nine nouns, two of the verb, and of the adjectives; none is added or removed.
  EXPECT_TRUE(
      at::equal(data.src, at::tensor({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 11}, at::kLong)));
  EXPECT_TRUE(at::equal(data.dst.slice(0, 8), at::tensor({0, 0, 9, 11, 10}, at::kLong)));
  const auto name = [&](int edge) {
    return data.class_names[static_cast<std::size_t>(data.labels[edge].item<std::int64_t>())];
  };
  EXPECT_EQ(name(0), "hypernym");
  EXPECT_EQ(name(9), "derivationally related form");
  EXPECT_EQ(name(11), "similar to");
  EXPECT_TRUE(adverb_refused("00000010 02 r 01 well 0 001 ? 00000010 n 0101 | well",
                             "a pointer of the unknown type '?'"));
}

TEST_F(WordNet, words_of_ten_glosses_are_counted_in_alphabetical_columns) {
  // "common" is in 11 glosses; "a", "thing" and "x" in nine: with one more noun they count too.
  const Dataset data = load_dataset(folder_.path());
  EXPECT_EQ(data.features.layout(), at::kSparseCsr);
  EXPECT_TRUE(at::equal(data.features.to_dense().slice(0, 8).flatten(),
                        at::tensor({1.F, 2.F, 1.F, 0.F, 0.F})));
  folder_.write("data.noun", nouns(10));
  const at::Tensor more = load_dataset(folder_.path()).features.to_dense();
  EXPECT_TRUE(at::equal(more[0], at::tensor({1.F, 1.F, 1.F, 1.F})));   // a common thing x
  EXPECT_TRUE(at::equal(more[10], at::tensor({0.F, 2.F, 0.F, 0.F})));  // the verb
}

TEST_F(WordNet, its_split_depends_on_the_seed_alone) {
  const Dataset first = load_dataset(folder_.path(), {.split_seed = 1});
  const Dataset again = load_dataset(folder_.path(), {.split_seed = 1});
  const Dataset other = load_dataset(folder_.path(), {.split_seed = 2});
  EXPECT_TRUE(at::equal(first.train_masks, again.train_masks));
  EXPECT_FALSE(at::equal(first.train_masks, other.train_masks));
  EXPECT_EQ(first.train_masks.sum().item<std::int64_t>(), 7);
  EXPECT_EQ(first.val_masks.sum().item<std::int64_t>(), 2);
  EXPECT_EQ(first.test_masks.sum().item<std::int64_t>(), 4);
}

TEST_F(WordNet, the_environment_says_where_it_is) {
  const EnvironmentVariable variable("MEZZO_WORDNET_DIR", folder_.path());
  const Dataset data = load_dataset("wordnet");
  EXPECT_EQ(data.num_nodes, 13);
  EXPECT_EQ(data.origin, folder_.path());
  EXPECT_EQ(list_datasets().at(0).path, folder_.path());
  EXPECT_TRUE(list_datasets().at(0).available);
}

TEST_F(WordNet, a_missing_dictionary_says_what_to_install) {
  const EnvironmentVariable variable("MEZZO_WORDNET_DIR", folder_.path("nowhere"));
  EXPECT_THROWS(IoError, fragments(folder_.path("nowhere"), "wordnet-base", "MEZZO_WORDNET_DIR"),
                load_dataset("wordnet"));
  EXPECT_FALSE(list_datasets().at(0).available);
}

TEST_F(WordNet, has_no_named_splits) {
  EXPECT_THROWS(InvalidArgument, "'x' is not a split of wordnet",
                load_dataset(folder_.path(), {.split = "x"}));
}

TEST_F(WordNet, missing_and_empty_files_are_io_errors) {
  EXPECT_TRUE(refused("data.adv", "", "data.adv: no synsets"));
  folder_.remove("data.adv");
  EXPECT_THROWS(IoError, "data.adv: no such file", load_dataset(folder_.path()));
}

TEST_F(WordNet, lines_that_break_off_are_io_errors) {
  EXPECT_TRUE(refused("data.adv", "00000010 02 r 01 well 0 000 | well", "line 2 is cut off"));
  EXPECT_TRUE(adverb_refused("00000010 02 r 01 well 0 000", "no gloss"));
  EXPECT_TRUE(adverb_refused("00000010 02 r 01 | well", "too few fields"));
  EXPECT_TRUE(adverb_refused("00000010 02 r 01 well 0 003 ! 00000010 r 0101 | well", "too few"));
  EXPECT_TRUE(adverb_refused("", "no gloss"));
}

TEST_F(WordNet, counts_that_lie_are_io_errors) {
  EXPECT_TRUE(adverb_refused("00000010 02 r ff well 0 000 | well", ""));
  EXPECT_TRUE(adverb_refused("00000010 02 r 7fffffffffffffff well 0 000 | well", ""));
  EXPECT_TRUE(adverb_refused("00000010 02 r 01 well 0 999999999999 | well", "too few fields"));
  EXPECT_TRUE(
      adverb_refused("00000010 02 r 01 well 0 99999999999999999999 | well", "expected a number"));
  EXPECT_TRUE(adverb_refused("00000010 02 r -1 well 0 000 | well", "expected a number"));
  EXPECT_TRUE(adverb_refused("0000001x 02 r 01 well 0 000 | well", "expected a number"));
}

TEST_F(WordNet, lexicographer_files_fit_the_part_of_speech) {
  EXPECT_TRUE(adverb_refused("00000010 45 r 01 well 0 000 | well", "lexicographer file 45"));
  EXPECT_TRUE(adverb_refused("00000010 03 r 01 well 0 000 | well",
                             "lexicographer file 3 does not belong to advs"));
  EXPECT_TRUE(adverb_refused("00000010 02 n 01 well 0 000 | well", "of another part of speech"));
  EXPECT_TRUE(adverb_refused("00000010 02 q 01 well 0 000 | well", "a part of speech other than"));
}

TEST_F(WordNet, offsets_ascend_and_pointers_hit_a_synset) {
  const std::string line = "00000010 02 r 01 well 0 000 | well  \n";
  EXPECT_TRUE(refused("data.adv", line + line, "line 3: offsets do not ascend"));
  EXPECT_TRUE(refused("data.adv", "00000010 02 r 01 well 0 001 ! 00000011 r 0101 | well  \n",
                      "synset 12 points to data.adv at 00000011"));
}

TEST_F(WordNet, a_changed_byte_gives_a_graph_or_an_io_error) {
  const std::string line = "00000010 02 r 01 well 0 001 ! 00000010 n 0101 | well  \n";
  for (std::size_t i = 0; i < line.size(); ++i) {
    std::string damaged = line;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    folder_.write("data.adv", damaged);
    try {
      EXPECT_EQ(load_dataset(folder_.path()).num_nodes, 13);
    } catch (const IoError&) {
    }
  }
}

TEST(WordNetOfDebian, has_the_known_counts) {
  if (!list_datasets().at(0).available) GTEST_SKIP() << "no WordNet: install wordnet-base";
  const Dataset data = load_dataset("wordnet");
  EXPECT_EQ(data.num_nodes, 117'659);
  EXPECT_EQ(data.num_edges(), 367'578);
  EXPECT_EQ(data.num_classes, 45);
  EXPECT_EQ(data.num_features(), 11'426);
  EXPECT_EQ(data.features.values().numel(), 1'223'210);
  EXPECT_EQ(data.labels.bincount().min().item<std::int64_t>(), 42);
  const at::Tensor degrees = data.src.bincount({}, data.num_nodes);
  EXPECT_EQ(degrees.max().item<std::int64_t>(), 674);
  EXPECT_EQ(degrees.eq(0).sum().item<std::int64_t>(), 1'009);
  const Dataset pointers = load_dataset("wordnet", {.task = Task{.target = TaskTarget::kEdge}});
  EXPECT_EQ(pointers.num_edges(), 377'592);
  EXPECT_EQ(pointers.labels.bincount().numel(), 26);
  EXPECT_EQ(pointers.labels.bincount().min().item<std::int64_t>(), 73);
}

}  // namespace
}  // namespace mezzo::test
