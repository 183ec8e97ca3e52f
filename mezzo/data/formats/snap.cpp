#include <algorithm>

#include <ATen/ATen.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

/// A SNAP edge list: comments that begin with `#` or `%`, two integers a line. The nodes are the
/// ids that occur, numbered in ascending order, which needs one more pass over the file. Edges keep
/// the direction of the file; self loops are dropped and parallel edges merged.
class SnapSource : public GraphSource {
 public:
  SnapSource(const std::filesystem::path& path, const LoadOptions& options)
      : path_(path), on_lines_(options.on_lines) {
    refuse_named_split(options, path.string());
  }

  SourceHeader header() override {
    return {
        .name = name_of_file(path_, ".txt"), .num_nodes = ranks().size(), .distinct_edges = true};
  }

  void edges(const TakeEdges& take) override {
    const IdRanks& rank = ranks();
    EdgePieces pieces(take);
    for_each_line([&](const TextLines& lines, std::int64_t src, std::int64_t dst) {
      const std::int64_t from = rank(src), to = rank(dst);
      lines.check(from >= 0 && to >= 0, kFileChanged);
      if (from != to) pieces.add(from, to);
    });
    pieces.finish();
  }

 private:
  template <class Edge>
  void for_each_line(Edge&& edge) const {
    TextLines lines(path_, on_lines_);
    std::string_view line;
    std::vector<std::string_view> fields;
    while (lines.next(line)) {
      if (is_snap_comment(line)) continue;
      split_fields(line, Separator::kBlanks, fields);
      if (fields.empty()) continue;
      const auto [src, dst] = edge_of_fields(lines, fields);
      edge(lines, src, dst);
    }
  }

  const IdRanks& ranks() {
    if (ranks_) return *ranks_;
    IdCollector ids;
    for_each_line([&](const TextLines& /*lines*/, std::int64_t src, std::int64_t dst) {
      ids.add(src);
      ids.add(dst);
    });
    ranks_.emplace(ids.finish());
    require(ranks_->size() > 0, path_.string(), "no edges");
    return *ranks_;
  }

  std::filesystem::path path_;
  std::function<void()> on_lines_;
  std::optional<IdRanks> ranks_;
};

}  // namespace

extern const Format kSnapFormat = {
    "SNAP edge list", {}, open_as<SnapSource>, [](const std::filesystem::path& path) {
      return text_by_name(path) == GraphText::kSnap;
    }};

}  // namespace mezzo::data
