#include "mezzo/data/source/source_support.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

namespace mezzo::data {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{1} << 25;
constexpr std::int64_t kMaxFeatures = std::int64_t{1} << 22;
constexpr std::int64_t kMaxExactLabel = std::int64_t{1} << 53;

const char* role_name(Role role) {
  switch (role) {
    case Role::kTrain:
      return "train";
    case Role::kVal:
      return "val";
    case Role::kTest:
      return "test";
    case Role::kNone:
      break;
  }
  return "no";
}

bool is_file_called(const std::filesystem::path& path, const std::string& suffix) {
  const std::string name = path.filename().string();
  const bool called = name.ends_with(suffix) || name.ends_with(suffix + ".gz");
  return called && std::filesystem::is_regular_file(path);
}

/// Sets `value` to the number in the whole field; accepts a sign `+`. Returns from_chars' error.
template <class Number>
std::errc parse(std::string_view field, Number& value) {
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);
  const char* const end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  return stop == end ? error : std::errc::invalid_argument;
}

}  // namespace

std::optional<std::int64_t> integer_of_field(std::string_view field) {
  std::int64_t value = 0;
  return parse(field, value) == std::errc{} ? std::optional(value) : std::nullopt;
}

bool is_number(std::string_view field) {
  double value = 0;
  return parse(field, value) != std::errc::invalid_argument;
}

std::int64_t rows_of_piece(std::int64_t width) {
  return std::max<std::int64_t>(1, kPieceBytes / (4 * std::max<std::int64_t>(width, 1)));
}

void check_feature_shape(const std::vector<std::int64_t>& shape, std::int64_t num_nodes,
                         const std::string& where) {
  require(shape.size() == 2 && shape[0] == num_nodes, where, "expected shape [{}, F], got [{}]",
          num_nodes, fmt::join(shape, ", "));
  require(shape[1] <= kMaxFeatures, where, "{} features, expected at most {}", shape[1],
          kMaxFeatures);
}

std::string name_of_path(const std::filesystem::path& path) {
  return std::filesystem::absolute(path / "").lexically_normal().parent_path().filename().string();
}

std::string name_of_file(const std::filesystem::path& path, std::string_view extension) {
  std::filesystem::path name = path.filename();
  if (name.extension() == ".gz") name = name.stem();
  if (name.extension() == extension) name = name.stem();
  return name.string();
}

std::filesystem::path plain_or_packed(const std::filesystem::path& path) {
  std::filesystem::path packed = path;
  packed += ".gz";
  return !std::filesystem::exists(path) && std::filesystem::exists(packed) ? packed : path;
}

GraphText text_by_lines(const std::filesystem::path& path) {
  TextLines lines(path);
  std::string_view line;
  std::vector<std::string_view> fields;
  while (lines.next(line)) {
    if (lines.number() == 1 && line.starts_with("%%")) return GraphText::kMatrixMarket;
    if (is_snap_comment(line)) continue;
    split_fields(line, Separator::kBlanks, fields);
    if (fields.empty()) continue;
    const bool snap = fields.size() == 2 && integer_of_field(fields[0]).has_value() &&
                      integer_of_field(fields[1]).has_value();
    return snap ? GraphText::kSnap : GraphText::kNone;
  }
  return GraphText::kNone;
}

GraphText text_by_name(const std::filesystem::path& path) {
  if (is_file_called(path, ".mtx")) return GraphText::kMatrixMarket;
  if (is_file_called(path, ".txt")) return GraphText::kSnap;
  const bool is_list = is_file_called(path, ".edges") || is_file_called(path, ".el");
  if (!is_list && !is_file_called(path, ".gz") && !is_file_called(path, ".tsv")) {
    return GraphText::kNone;
  }
  const GraphText text = text_by_lines(path);
  // If the name is an edge list's, the reader reports errors.
  return is_list && text == GraphText::kNone ? GraphText::kSnap : text;
}

void EdgePieces::add(std::int64_t src, std::int64_t dst) {
  if (size_ == 0) {
    src_ = at::empty({kPieceEdges}, at::kLong);
    dst_ = at::empty({kPieceEdges}, at::kLong);
    src_data_ = src_.mutable_data_ptr<std::int64_t>();
    dst_data_ = dst_.mutable_data_ptr<std::int64_t>();
  }
  src_data_[size_] = src;
  dst_data_[size_] = dst;
  if (++size_ == kPieceEdges) finish();
}

void EdgePieces::finish() {
  if (size_ == 0) return;
  take_(src_.narrow(0, 0, size_), dst_.narrow(0, 0, size_));
  size_ = 0;
}

RowPieces::RowPieces(std::int64_t width, const GraphSource::TakeRows& take)
    : take_(take), width_(width), capacity_(rows_of_piece(width)) {}

float* RowPieces::next_row() {
  if (size_ == capacity_) finish();
  if (size_ == 0) rows_ = at::zeros({capacity_, width_}, at::kFloat);
  return rows_.mutable_data_ptr<float>() + width_ * size_++;
}

void RowPieces::finish() {
  if (size_ == 0) return;
  take_(rows_.narrow(0, 0, size_));
  size_ = 0;
}

void IdCollector::compact() {
  std::sort(ids_.begin(), ids_.end());
  ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  limit_ = std::max(limit_, 2 * ids_.size());
}

std::vector<std::int64_t> IdCollector::finish() {
  compact();
  ids_.shrink_to_fit();
  return std::move(ids_);
}

IdRanks::IdRanks(std::vector<std::int64_t> ids) : ids_(std::move(ids)) {
  constexpr std::int64_t kMaxSparsity = 4;  // the table has at most 16 bytes per node
  const bool dense = !ids_.empty() && ids_.back() / kMaxSparsity < size() &&
                     size() <= std::numeric_limits<std::int32_t>::max();
  if (!dense) return;
  table_.assign(static_cast<std::size_t>(ids_.back()) + 1, -1);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    table_[static_cast<std::size_t>(ids_[i])] = static_cast<std::int32_t>(i);
  }
}

std::int64_t IdRanks::operator()(std::int64_t id) const {
  if (!table_.empty()) {
    const bool known = id >= 0 && id < static_cast<std::int64_t>(table_.size());
    return known ? table_[static_cast<std::size_t>(id)] : -1;
  }
  const auto place = std::lower_bound(ids_.begin(), ids_.end(), id);
  return place != ids_.end() && *place == id ? place - ids_.begin() : -1;
}

Edge edge_of_fields(const TextLines& lines, const std::vector<std::string_view>& fields,
                    std::optional<std::int64_t> num_nodes) {
  lines.check(fields.size() == 2, "expected two columns of node ids, got {}", fields.size());
  const std::int64_t src = lines.integer(fields[0]), dst = lines.integer(fields[1]);
  lines.check(num_nodes || std::min(src, dst) >= 0, "node id {} is negative", std::min(src, dst));
  lines.check(!num_nodes || (std::min(src, dst) >= 0 && std::max(src, dst) < *num_nodes),
              "edge from {} to {}, outside [0, {})", src, dst, num_nodes.value_or(0));
  return {src, dst};
}

std::int64_t label_of_field(const TextLines& lines, std::string_view field) {
  if (field.empty() || field == "\"\"") return kNoLabel;
  const double value = lines.real(field);
  if (std::isnan(value)) return kNoLabel;
  lines.check(
      value >= 0 && value < static_cast<double>(kMaxExactLabel) && value == std::floor(value),
      "label {}, expected an integer that is at least 0", value);
  return static_cast<std::int64_t>(value);
}

float feature_of_field(const TextLines& lines, std::string_view field) {
  const auto value = static_cast<float>(lines.real(field));
  lines.check(std::isfinite(value), "feature {} is not finite in float32", field);
  return value;
}

GraphSource::Masks SplitBuilder::masks(const at::Tensor& has_label) const {
  const auto count = static_cast<std::int64_t>(roles_.size());
  static_assert(sizeof(Role) == 1);
  at::Tensor roles = at::empty({count, 1}, at::kByte);
  if (count > 0) std::memcpy(roles.mutable_data_ptr(), roles_.data(), roles_.size());
  const at::Tensor labelled = has_label.unsqueeze(1);
  const auto mask = [&](Role role) {
    return roles.eq(static_cast<std::int64_t>(role)).logical_and_(labelled);
  };
  return {.train = mask(Role::kTrain), .val = mask(Role::kVal), .test = mask(Role::kTest)};
}

void SplitBuilder::refuse(std::int64_t id, const std::string& where) const {
  const auto count = static_cast<std::int64_t>(roles_.size());
  const std::string_view target = name_of(TaskTargets{}, of_);
  require(id >= 0 && id < count, where, "{} {} is outside [0, {})", target, id, count);
  detail::raise<IoError>("{}: {} {} is already in the split, as {}", where, target, id,
                         role_name(roles_[static_cast<std::size_t>(id)]));
}

void require_all_labelled(const TargetLabels& labels, const std::string& where) {
  if (labels.num_classes == 0 || labels.has_label.all().item<bool>()) return;
  const at::Tensor without = labels.has_label.logical_not().nonzero();
  detail::raise<IoError>("{}: {} {} has no label, and no split excludes it", where,
                         name_of(TaskTargets{}, labels.target), without[0][0].item<std::int64_t>());
}

}  // namespace mezzo::data
