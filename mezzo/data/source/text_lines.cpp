#include "mezzo/data/source/text_lines.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include <zlib.h>

#include "mezzo/data/readers.h"

namespace mezzo::data {
namespace {

constexpr std::size_t kFirstBufferBytes = std::size_t{1} << 18;
constexpr std::size_t kMaxQuotedBytes = 40;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// A field for a message: in quotes, not too long, on one line.
std::string quoted(std::string_view field) {
  std::string text(field.substr(0, kMaxQuotedBytes));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return "'" + text + (field.size() > kMaxQuotedBytes ? "...'" : "'");
}

template <class Number>
Number parsed_number(const TextLines& lines, std::string_view field, const char* what) {
  std::string_view digits = field;
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  Number value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  lines.check(error != std::errc::result_out_of_range, "{} is out of range", quoted(field));
  lines.check(error == std::errc{} && stop == end, "{} is not {}", quoted(field), what);
  return value;
}

}  // namespace

void TextLines::Closer::operator()(::gzFile_s* file) const {
  gzclose_r(file);
}

TextLines::TextLines(const std::filesystem::path& path, std::function<void()> on_lines)
    : path_(path.string()), on_lines_(std::move(on_lines)), buffer_(kFirstBufferBytes) {
  regular_file_bytes(path);
  file_.reset(gzopen(path_.c_str(), "rb"));
  require(file_ != nullptr, path_, "cannot be opened for reading");
  gzbuffer(file_.get(), static_cast<unsigned>(kFirstBufferBytes));
  require(path.extension() != ".gz" || gzdirect(file_.get()) == 0, path_,
          "not a gzip file, though its name says so");
}

bool TextLines::next(std::string_view& line) {
  std::size_t searched = begin_;
  const char* newline = nullptr;
  while (true) {
    newline =
        static_cast<const char*>(std::memchr(buffer_.data() + searched, '\n', end_ - searched));
    if (newline != nullptr) break;
    searched = end_ - begin_;  // the unread bytes, which refill moves to the front
    if (!refill()) break;
  }
  if (newline == nullptr && begin_ == end_) return false;
  const char* const start = buffer_.data() + begin_;
  const char* const stop = newline != nullptr ? newline : buffer_.data() + end_;
  line = std::string_view(start, static_cast<std::size_t>(stop - start));
  begin_ += line.size() + (newline != nullptr ? 1 : 0);
  ++number_;
  if (on_lines_ && number_ % kLinesPerCall == 0) on_lines_();
  check(line.size() <= kMaxLineBytes, "a line of more than {} bytes", kMaxLineBytes);
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (number_ == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  return true;
}

/// Moves the unread bytes to the front of the buffer and fills the rest. False at the end of the
/// file.
bool TextLines::refill() {
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
            buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
  end_ -= begin_;
  begin_ = 0;
  if (at_end_) return false;
  if (end_ == buffer_.size()) {
    require(end_ <= kMaxLineBytes, fmt::format("{}:{}", path_, number_ + 1),
            "a line of more than {} bytes", kMaxLineBytes);
    buffer_.resize(2 * buffer_.size());
  }
  const auto room = static_cast<unsigned>(buffer_.size() - end_);
  const int got = gzread(file_.get(), buffer_.data() + end_, room);
  int code = Z_OK;
  const char* const text = gzerror(file_.get(), &code);
  const std::string place = fmt::format("{}:{}", path_, number_ + 1);
  require(code != Z_BUF_ERROR, place, "the gzip data end too early: the file is truncated");
  require(got >= 0, place, "cannot be read: {}", text);
  end_ += static_cast<std::size_t>(got);
  at_end_ = got == 0;
  return !at_end_;
}

std::string TextLines::where() const {
  return fmt::format("{}:{}", path_, number_);
}

std::int64_t TextLines::integer(std::string_view field) const {
  return parsed_number<std::int64_t>(*this, field, "an integer");
}

double TextLines::real(std::string_view field) const {
  return parsed_number<double>(*this, field, "a number");
}

void split_fields(std::string_view line, Separator separator,
                  std::vector<std::string_view>& fields) {
  fields.clear();
  if (separator != Separator::kBlanks) {
    while (true) {
      const std::size_t end = line.find(static_cast<char>(separator));
      fields.push_back(trimmed(line.substr(0, end)));
      if (end == std::string_view::npos) return;
      line.remove_prefix(end + 1);
    }
  }
  std::size_t position = 0;
  while (true) {
    while (position < line.size() && is_blank(line[position])) ++position;
    if (position == line.size()) return;
    const std::size_t start = position;
    while (position < line.size() && !is_blank(line[position])) ++position;
    fields.push_back(line.substr(start, position - start));
  }
}

}  // namespace mezzo::data
