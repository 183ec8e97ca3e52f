#include "mezzo/data/source/text_lines.h"

#include <cmath>

#include <sys/stat.h>

#include "data/source/source_reader.h"

namespace mezzo::data {
namespace {

using namespace mezzo::test;

class TextFile : public testing::Test {
 protected:
  std::vector<std::string> lines_of(const std::string& bytes,
                                    const std::string& name = "a.txt") const {
    TextLines lines(folder_.write(name, bytes));
    std::vector<std::string> texts;
    std::string_view line;
    while (lines.next(line)) {
      texts.emplace_back(line);
      EXPECT_EQ(lines.number(), static_cast<std::int64_t>(texts.size()));
    }
    return texts;
  }

  TempFolder folder_;
};

std::vector<std::string> fields_of(const std::string& line, Separator separator) {
  std::vector<std::string_view> fields;
  split_fields(line, separator, fields);
  return {fields.begin(), fields.end()};
}

TEST_F(TextFile, is_read_line_by_line_plain_or_gzip) {
  const std::string text = "1 2\r\n\n3 4";
  const std::vector<std::string> expected = {"1 2", "", "3 4"};
  EXPECT_EQ(lines_of(text), expected);
  EXPECT_EQ(lines_of(gzip(text), "a.txt.gz"), expected);
  EXPECT_EQ(lines_of(gzip("1 2\n\n3") + gzip(" 4\n"), "a.gz"), expected);
  EXPECT_EQ(lines_of(text + "\n"), expected);
  EXPECT_TRUE(lines_of("").empty());
  EXPECT_EQ(lines_of("\xEF\xBB\xBFid,label\n"), std::vector<std::string>{"id,label"});
}

TEST_F(TextFile, lines_longer_than_the_buffer_and_across_its_ends_are_whole) {
  std::vector<std::string> expected;
  std::string text;
  for (int i = 0; i < 60; ++i) {
    expected.emplace_back(static_cast<std::size_t>(i * 9973 + 1), static_cast<char>('a' + i % 26));
    text += expected.back() + "\n";
  }
  EXPECT_EQ(lines_of(text), expected);
  EXPECT_EQ(lines_of(gzip(text), "a.gz"), expected);
}

TEST_F(TextFile, too_long_a_line_is_an_io_error) {
  const std::string text = "ok\n" + std::string(TextLines::kMaxLineBytes + 1, 'x') + "\n";
  EXPECT_THROWS(IoError, fragments("a.txt:2: ", "16777216 bytes"), lines_of(text));
  const std::string endless(3 * TextLines::kMaxLineBytes, 'x');
  EXPECT_THROWS(IoError, fragments("a.txt:1: ", "16777216 bytes"), lines_of(endless));
  EXPECT_EQ(lines_of(std::string(TextLines::kMaxLineBytes, 'x')).size(), 1U);
}

TEST_F(TextFile, truncated_and_damaged_gzip_files_are_io_errors) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i * 7919 % 5000) + "\n";
  const std::string packed = gzip(text);
  for (const std::size_t length :
       {packed.size() - 1, packed.size() - 8, packed.size() / 2, std::size_t{12}, std::size_t{5}}) {
    EXPECT_THROWS(IoError, fragments("a.gz", "truncated"),
                  lines_of(packed.substr(0, length), "a.gz"))
        << length;
  }
  std::string damaged = packed;
  damaged[damaged.size() - 6] = static_cast<char>(damaged[damaged.size() - 6] ^ 1);  // its checksum
  EXPECT_THROWS(IoError, "a.gz:", lines_of(damaged, "a.gz"));
  EXPECT_THROWS(IoError, fragments("a.gz", "not a gzip file"), lines_of("1\n", "a.gz"));
  EXPECT_THROWS(IoError, fragments("a.gz", "not a gzip file"), lines_of("", "a.gz"));
}

TEST_F(TextFile, missing_files_folders_and_pipes_are_io_errors) {
  EXPECT_THROWS(IoError, "no such file", TextLines(folder_.path("none")));
  EXPECT_THROWS(IoError, "not a regular file", TextLines(folder_.path()));
  ASSERT_EQ(mkfifo(folder_.path("pipe").c_str(), 0600), 0);
  EXPECT_THROWS(IoError, "not a regular file", TextLines(folder_.path("pipe")));
}

TEST_F(TextFile, calls_back_after_every_so_many_lines) {
  const std::string text(static_cast<std::size_t>(2 * TextLines::kLinesPerCall + 1), '\n');
  std::vector<std::int64_t> calls;
  std::int64_t read = 0;
  TextLines lines(folder_.write("a.txt", text), [&] { calls.push_back(read + 1); });
  std::string_view line;
  while (lines.next(line)) ++read;
  EXPECT_EQ(calls, (std::vector{TextLines::kLinesPerCall, 2 * TextLines::kLinesPerCall}));
}

TEST_F(TextFile, numbers_are_read_whole_or_refused_with_their_line) {
  TextLines lines(folder_.write("a.txt", "x\ny\n"));
  std::string_view line;
  ASSERT_TRUE(lines.next(line) && lines.next(line));
  EXPECT_EQ(lines.integer("-12"), -12);
  EXPECT_EQ(lines.integer("+12"), 12);
  EXPECT_EQ(lines.real("1.5e3"), 1500);
  EXPECT_TRUE(std::isnan(lines.real("nan")));
  for (const char* text : {"", "-", "+", "+-1", "1x", "1.0", "0x1", " 1", "one"}) {
    EXPECT_THROWS(IoError, fragments("a.txt:2: ", "not an integer"), lines.integer(text)) << text;
  }
  EXPECT_THROWS(IoError, "out of range", lines.integer("9223372036854775808"));
  EXPECT_THROWS(IoError, fragments("a.txt:2: ", "out of range"), lines.real("1e999"));
  EXPECT_THROWS(IoError,
                "'?"
                "?' is not a number",
                lines.real("\x01\x02"));
}

TEST(SplitFields, cuts_at_commas_or_blanks) {
  using Fields = std::vector<std::string>;
  EXPECT_EQ(fields_of("1, 2 ,,\t3", Separator::kComma), (Fields{"1", "2", "", "3"}));
  EXPECT_EQ(fields_of("1,2;3 ;", Separator::kSemicolon), (Fields{"1,2", "3", ""}));
  EXPECT_EQ(fields_of("\t 1\t2", Separator::kTab), (Fields{"", "1", "2"}));
  EXPECT_EQ(fields_of("", Separator::kComma), (Fields{""}));
  EXPECT_EQ(fields_of(",", Separator::kComma), (Fields{"", ""}));
  EXPECT_EQ(fields_of(" 1 \t 2  ", Separator::kBlanks), (Fields{"1", "2"}));
  EXPECT_EQ(fields_of("  ", Separator::kBlanks), (Fields{}));
}

}  // namespace
}  // namespace mezzo::data
