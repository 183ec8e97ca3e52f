#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <unordered_map>

#include <ATen/ATen.h>

#include "mezzo/core/environment.h"
#include "mezzo/data/formats.h"
#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kMinGlosses = 10;

constexpr std::array<std::string_view, 45> kLexicographerFiles = {
    "adj.all",          "adj.pert",           "adv.all",
    "noun.Tops",        "noun.act",           "noun.animal",
    "noun.artifact",    "noun.attribute",     "noun.body",
    "noun.cognition",   "noun.communication", "noun.event",
    "noun.feeling",     "noun.food",          "noun.group",
    "noun.location",    "noun.motive",        "noun.object",
    "noun.person",      "noun.phenomenon",    "noun.plant",
    "noun.possession",  "noun.process",       "noun.quantity",
    "noun.relation",    "noun.shape",         "noun.state",
    "noun.substance",   "noun.time",          "verb.body",
    "verb.change",      "verb.cognition",     "verb.communication",
    "verb.competition", "verb.consumption",   "verb.contact",
    "verb.creation",    "verb.emotion",       "verb.motion",
    "verb.perception",  "verb.possession",    "verb.social",
    "verb.stative",     "verb.weather",       "adj.ppl"};

/// The types of pointers, by their symbols in the files, with the names of wninput(5WN).
struct PointerType {
  std::string_view symbol, name;
};

constexpr std::array<PointerType, 26> kPointerTypes = {{{"!", "antonym"},
                                                        {"@", "hypernym"},
                                                        {"@i", "instance hypernym"},
                                                        {"~", "hyponym"},
                                                        {"~i", "instance hyponym"},
                                                        {"#m", "member holonym"},
                                                        {"#s", "substance holonym"},
                                                        {"#p", "part holonym"},
                                                        {"%m", "member meronym"},
                                                        {"%s", "substance meronym"},
                                                        {"%p", "part meronym"},
                                                        {"=", "attribute"},
                                                        {"+", "derivationally related form"},
                                                        {";c", "domain topic"},
                                                        {"-c", "member of domain topic"},
                                                        {";r", "domain region"},
                                                        {"-r", "member of domain region"},
                                                        {";u", "domain usage"},
                                                        {"-u", "member of domain usage"},
                                                        {"*", "entailment"},
                                                        {">", "cause"},
                                                        {"^", "also see"},
                                                        {"$", "verb group"},
                                                        {"&", "similar to"},
                                                        {"<", "participle of verb"},
                                                        {"\\", "pertainym"}}};

/// A part of speech: its file, and its letters in lines and pointers.
struct PartOfSpeech {
  std::string_view name;
  std::string_view letters;
};

constexpr std::array<PartOfSpeech, 4> kParts = {
    {{"noun", "n"}, {"verb", "v"}, {"adj", "as"}, {"adv", "r"}}};

struct Pointer {
  std::int64_t node;
  std::int64_t type;  // of kPointerTypes
  std::size_t part;
  std::int64_t offset;
};

/// The synsets of all four files.
struct Synsets {
  std::array<std::vector<std::int64_t>, kParts.size()> offsets;  // ascending, per file
  std::vector<std::int64_t> labels;
  std::vector<Pointer> pointers;
  std::vector<std::string_view> glosses;  // views of the files' bytes
};

std::size_t part_of(std::string_view letter, const std::string& where) {
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    if (letter.size() == 1 && kParts[i].letters.find(letter) != std::string_view::npos) return i;
  }
  detail::raise<IoError>("{}: a part of speech other than n, v, a, s and r", where);
}

std::int64_t pointer_type_of(std::string_view symbol, const std::string& where) {
  const auto* const type = std::find_if(kPointerTypes.begin(), kPointerTypes.end(),
                                        [&](const auto& one) { return one.symbol == symbol; });
  require(type != kPointerTypes.end(), where, "a pointer of the unknown type '{}'", symbol);
  return type - kPointerTypes.begin();
}

/// Reads the fields of one line from the left.
class LineReader {
 public:
  LineReader(std::string_view line, const std::string& file, std::int64_t number)
      : rest_(line), file_(file), number_(number) {}

  std::string_view field() {
    const std::size_t begin = rest_.find_first_not_of(' ');
    if (begin == std::string_view::npos) fault("too few fields");
    rest_.remove_prefix(begin);
    const std::string_view field_text = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(field_text.size());
    return field_text;
  }

  std::int64_t number(int base) {
    const std::string_view text = field();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc{} || end != text.data() + text.size() || value < 0) {
      fault("expected a number");
    }
    return value;
  }

  [[noreturn]] void fault(std::string_view what) const {
    detail::raise<IoError>("{}: {}", where(), what);
  }

  std::string where() const { return fmt::format("{}: line {}", file_, number_); }

 private:
  std::string_view rest_;
  const std::string& file_;
  std::int64_t number_;
};

/// One line: offset lexicographer_file type num_words {word id} num_pointers {symbol offset pos
/// source} [verb frames] | gloss. Word counts are hexadecimal.
void parse_line(std::string_view line, std::size_t part, LineReader& reader, Synsets& synsets) {
  const std::size_t bar = line.find(" | ");
  if (bar == std::string_view::npos) reader.fault("no gloss (' | ')");
  const std::int64_t offset = reader.number(10);
  auto& offsets = synsets.offsets[part];
  if (!offsets.empty() && offset <= offsets.back()) reader.fault("offsets do not ascend");
  const std::int64_t label = reader.number(10);
  const auto num_classes = static_cast<std::int64_t>(kLexicographerFiles.size());
  if (label >= num_classes ||
      !kLexicographerFiles[static_cast<std::size_t>(label)].starts_with(kParts[part].name)) {
    reader.fault(
        fmt::format("lexicographer file {} does not belong to {}s", label, kParts[part].name));
  }
  if (part_of(reader.field(), reader.where()) != part) reader.fault("of another part of speech");
  const std::int64_t num_words = reader.number(16);
  for (std::int64_t i = 0; i < num_words; ++i) {
    reader.field();
    reader.number(16);
  }
  const auto node = static_cast<std::int64_t>(synsets.labels.size());
  const std::int64_t num_pointers = reader.number(10);
  for (std::int64_t i = 0; i < num_pointers; ++i) {
    const std::int64_t type = pointer_type_of(reader.field(), reader.where());
    const std::int64_t target = reader.number(10);
    const std::size_t target_part = part_of(reader.field(), reader.where());
    reader.field();  // which words it joins
    synsets.pointers.push_back({node, type, target_part, target});
  }
  offsets.push_back(offset);
  synsets.labels.push_back(label);
  synsets.glosses.push_back(line.substr(bar + 3));
}

void parse_file(std::string_view bytes, const std::string& file, std::size_t part,
                Synsets& synsets) {
  const std::size_t before = synsets.labels.size();
  std::int64_t number = 0;
  while (!bytes.empty()) {
    ++number;
    const std::size_t end = bytes.find('\n');
    require(end != std::string_view::npos, file, "line {} is cut off", number);
    const std::string_view line = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
    if (line.starts_with("  ")) continue;  // the licence
    LineReader reader(line.substr(0, line.find(" | ")), file, number);
    parse_line(line, part, reader, synsets);
  }
  require(synsets.labels.size() > before, file, "no synsets");
}

std::vector<Edge> resolve_pointers(const Synsets& synsets, const std::string& where) {
  std::array<std::int64_t, kParts.size()> first_node{};
  for (std::size_t i = 1; i < kParts.size(); ++i) {
    first_node[i] = first_node[i - 1] + static_cast<std::int64_t>(synsets.offsets[i - 1].size());
  }
  std::vector<Edge> edges;
  edges.reserve(synsets.pointers.size());
  for (const Pointer& pointer : synsets.pointers) {
    const auto& offsets = synsets.offsets[pointer.part];
    const auto target = std::lower_bound(offsets.begin(), offsets.end(), pointer.offset);
    require(target != offsets.end() && *target == pointer.offset, where,
            "synset {} points to data.{} at {:08}, where no synset begins", pointer.node,
            kParts[pointer.part].name, pointer.offset);
    edges.emplace_back(pointer.node, first_node[pointer.part] + (target - offsets.begin()));
  }
  return edges;
}

/// Replaces all but lower-case letters with blanks.
std::string letters_of(std::string_view gloss) {
  std::string text(gloss);
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c < 'a' || c > 'z') c = ' ';
  }
  return text;
}

/// The words of all glosses, numbered by first occurrence.
struct Vocabulary {
  std::vector<std::string> texts;  // the glosses, letters only
  std::unordered_map<std::string_view, std::int32_t> ids;
  std::vector<std::string_view> words;    // by id
  std::vector<std::int32_t> num_glosses;  // by id: how many glosses have it
  std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> counts;  // gloss: (id, times)
};

void count_words(std::string_view text, Vocabulary& vocabulary) {
  std::vector<std::int32_t> ids;
  for (std::size_t begin = text.find_first_not_of(' '); begin != std::string_view::npos;
       begin = text.find_first_not_of(' ', begin)) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const auto [entry, fresh] =
        vocabulary.ids.emplace(word, static_cast<std::int32_t>(vocabulary.words.size()));
    if (fresh) {
      vocabulary.words.push_back(word);
      vocabulary.num_glosses.push_back(0);
    }
    ids.push_back(entry->second);
    begin = end;
  }
  std::sort(ids.begin(), ids.end());
  auto& counts = vocabulary.counts.emplace_back();
  for (const std::int32_t id : ids) {
    if (counts.empty() || counts.back().first != id) {
      counts.emplace_back(id, 0);
      ++vocabulary.num_glosses[static_cast<std::size_t>(id)];
    }
    ++counts.back().second;
  }
}

/// The column of each word that enough glosses have, in alphabetical order; -1 for others.
std::vector<std::int64_t> assign_columns(const Vocabulary& vocabulary, std::int64_t& num_columns) {
  std::vector<std::size_t> words;
  for (std::size_t id = 0; id < vocabulary.words.size(); ++id) {
    if (vocabulary.num_glosses[id] >= kMinGlosses) words.push_back(id);
  }
  std::sort(words.begin(), words.end(), [&](std::size_t a, std::size_t b) {
    return vocabulary.words[a] < vocabulary.words[b];
  });
  std::vector<std::int64_t> columns(vocabulary.words.size(), -1);
  num_columns = 0;
  for (const std::size_t id : words) columns[id] = num_columns++;
  return columns;
}

at::Tensor bag_of_words(const std::vector<std::string_view>& glosses, const std::string& where) {
  Vocabulary vocabulary;
  vocabulary.texts.reserve(glosses.size());  // `words` views them
  for (const std::string_view gloss : glosses) {
    count_words(vocabulary.texts.emplace_back(letters_of(gloss)), vocabulary);
  }
  std::int64_t num_columns = 0;
  const std::vector<std::int64_t> columns = assign_columns(vocabulary, num_columns);

  std::vector<std::int64_t> indptr = {0};
  std::vector<std::int64_t> indices;
  std::vector<float> values;
  for (auto& counts : vocabulary.counts) {
    const auto column = [&](const auto& count) {
      return columns[static_cast<std::size_t>(count.first)];
    };
    std::sort(counts.begin(), counts.end(),
              [&](const auto& a, const auto& b) { return column(a) < column(b); });
    for (const auto& count : counts) {
      if (column(count) < 0) continue;
      indices.push_back(column(count));
      values.push_back(static_cast<float>(count.second));
    }
    indptr.push_back(static_cast<std::int64_t>(indices.size()));
  }
  return make_csr(static_cast<std::int64_t>(glosses.size()), num_columns,
                  at::tensor(indptr, at::kLong), at::tensor(indices, at::kLong),
                  at::tensor(values, at::kFloat), where);
}

/// Labels of nodes: the lexicographer files. Edges: pointers of all types, undirected.
void set_lexicographer_files(const Synsets& synsets, const std::string& where, Dataset& dataset) {
  dataset.class_names.assign(kLexicographerFiles.begin(), kLexicographerFiles.end());
  set_labels(dataset, class_labels(at::tensor(synsets.labels, at::kLong),
                                   static_cast<std::int64_t>(dataset.class_names.size()), where));
  set_undirected_edges(dataset, resolve_pointers(synsets, where), where);
}

/// Labels of edges: the types of pointers. Edges: every pointer, from its synset to the other.
void set_pointer_types(const Synsets& synsets, const std::string& where, Dataset& dataset) {
  std::vector<std::int64_t> src, dst, types;
  for (const auto& [from, to] : resolve_pointers(synsets, where)) {
    src.push_back(from);
    dst.push_back(to);
  }
  for (const Pointer& pointer : synsets.pointers) types.push_back(pointer.type);
  for (const PointerType& type : kPointerTypes) dataset.class_names.emplace_back(type.name);
  const TargetLabels labels =
      class_labels(at::tensor(types, at::kLong), static_cast<std::int64_t>(kPointerTypes.size()),
                   where, TaskTarget::kEdge);
  dataset.num_nodes = static_cast<std::int64_t>(synsets.labels.size());
  dataset.src = at::tensor(src, at::kLong);
  dataset.dst = at::tensor(dst, at::kLong);
  dataset.target = labels.target;
  dataset.labels = labels.labels;
  dataset.num_classes = labels.num_classes;
}

/// WordNet's data.noun, data.verb, data.adj and data.adv. Nodes: synsets, file by file, in the
/// order of the files. Labels: the 45 lexicographer files of the synsets, with undirected edges; or
/// if the task has edges the 26 types of the pointers, which are then the edges. Features: how
/// often the gloss (definitions and examples) has each word; a word is a maximal run of the letters
/// a to z after lower-casing, and counts if at least ten glosses have it; columns in alphabetical
/// order. The reference configuration divides rows by their sums (LoadOptions::normalize_features).
/// A random split.
Dataset read_wordnet(const fs::path& folder, const LoadOptions& options) {
  refuse_named_split(options, "wordnet");
  std::array<std::string, kParts.size()> files;
  Synsets synsets;
  for (std::size_t i = 0; i < kParts.size(); ++i) {
    const fs::path path = folder / fmt::format("data.{}", kParts[i].name);
    files[i] = read_file(path);
    parse_file(files[i], path.string(), i, synsets);
  }
  Dataset dataset;
  dataset.name = "wordnet";
  dataset.tasks = {Task{}, {.target = TaskTarget::kEdge}};
  // Of links the types are those of relations.
  const bool of_edges = options.task && (options.task->target == TaskTarget::kEdge ||
                                         options.task->target == TaskTarget::kLink);
  (of_edges ? set_pointer_types : set_lexicographer_files)(synsets, folder.string(), dataset);
  dataset.features = bag_of_words(synsets.glosses, folder.string());
  set_random_split(dataset, options.split_seed);
  return dataset;
}

}  // namespace

fs::path wordnet_folder() {
  const std::string folder = environment_text("MEZZO_WORDNET_DIR");
  return folder.empty() ? "/usr/share/wordnet" : folder;
}

extern const Format kWordnetFormat = {
    "WordNet dictionary", {"data.noun"}, open_whole<read_wordnet>};

}  // namespace mezzo::data
