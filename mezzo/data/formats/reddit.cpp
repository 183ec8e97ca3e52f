#include <algorithm>

#include <ATen/ATen.h>

#include "mezzo/data/formats.h"
#include "mezzo/data/npy/npz.h"
#include "mezzo/data/source/array_pieces.h"
#include "mezzo/data/source/source_support.h"

namespace mezzo::data {
namespace {

/// DGL's Reddit folder: reddit_graph.npz (scipy COO; entry (i, j) is the edge from i to j) and
/// reddit_data.npz (feature, label, node_types: 1 train, 2 val, 3 test, 0 none). Memory: labels and
/// types; entries and features are streamed.
class RedditSource : public GraphSource {
 public:
  RedditSource(const std::filesystem::path& folder, const LoadOptions& options)
      : folder_(folder), graph_(folder / "reddit_graph.npz"), data_(folder / "reddit_data.npz") {
    refuse_named_split(options, folder.string());
  }

  SourceHeader header() override {
    const NpyStream rows(data_, "feature");
    check_feature_shape(rows.shape(), num_nodes(), rows.where());
    return {
        .name = name_of_path(folder_), .num_nodes = num_nodes(), .num_features = rows.shape()[1]};
  }

  void edges(const TakeEdges& take) override { take_entries_of_coo(graph_, num_nodes(), take); }

  void features(const TakeRows& take) override {
    take_rows_of_array(NpyStream(data_, "feature"), num_nodes(), take);
  }

  TargetLabels labels() override {
    if (labels_) return *labels_;
    const NpzFile file(data_);
    const std::string where = file.where("label");
    const at::Tensor array = as_int64(file.numbers("label"), where);
    const bool column = array.dim() == 2 && array.size(1) == 1;
    require((array.dim() == 1 || column) && array.numel() == num_nodes(), where,
            "expected shape [{0}] or [{0}, 1], got {1}", num_nodes(), shape_text(array));
    require(array.min().item<std::int64_t>() >= 0, where, "a negative label");
    labels_ = class_labels(array, std::nullopt, where);
    return *labels_;
  }

  std::optional<Masks> masks() override {
    const NpzFile file(data_);
    const std::string where = file.where("node_types");
    const at::Tensor types = as_int64(file.numbers("node_types"), where);
    require(types.dim() == 1 && types.numel() == num_nodes(), where, "expected shape [{}], got {}",
            num_nodes(), shape_text(types));
    const auto* type = types.const_data_ptr<std::int64_t>();
    SplitBuilder split(num_nodes());
    for (std::int64_t i = 0; i < types.numel(); ++i) {
      require(type[i] >= 0 && type[i] <= 3, where,
              "node {} has type {}, expected 0 (none), 1 (train), 2 (val) or 3 (test)", i, type[i]);
      split.assign(i, static_cast<Role>(type[i]), [&] { return where; });
    }
    return split.masks(labels().has_label);
  }

 private:
  std::int64_t num_nodes() {
    if (!num_nodes_) num_nodes_ = size_of_square(graph_, "coo");
    return *num_nodes_;
  }

  std::filesystem::path folder_, graph_, data_;
  std::optional<std::int64_t> num_nodes_;
  std::optional<TargetLabels> labels_;
};

}  // namespace

extern const Format kRedditFormat = {
    "Reddit folder of DGL", {"reddit_graph.npz"}, open_as<RedditSource>};

}  // namespace mezzo::data
