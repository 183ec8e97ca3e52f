#include <tuple>

#include "mezzo/data/checks/checks.h"

namespace mezzo::data {
namespace {

class FeatureChecks : public DatasetCheck {
 public:
  using DatasetCheck::DatasetCheck;

  void run() const {
    const at::Tensor& features = data_.features;
    if (!features.defined()) return;
    const bool sparse = features.layout() == at::kSparseCsr;
    const at::ScalarType dtype = features.scalar_type();
    const bool dense = features.layout() == at::kStrided &&
                       (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf);
    check(features.is_cpu() && (dense || (sparse && dtype == at::kFloat)) && features.dim() == 2 &&
              features.size(0) == data_.num_nodes,
          "features: expected float32 [{}, F], strided (also bfloat16 or float16) or sparse CSR, "
          "on the CPU, got {} {}",
          data_.num_nodes, c10::getDtypeNames(dtype).first, shape_text(features));
    check(dense || !data_.is_mapped, "features: sparse ones are not mapped");
    if (data_.is_mapped) return;
    if (sparse) check_sparse(features);
    const at::Tensor values = (sparse ? features.values() : features).contiguous();
    if (dtype == at::kFloat) check_finite<float>(values, "features");
    if (dtype == at::kBFloat16) check_finite<at::BFloat16>(values, "features");
    if (dtype == at::kHalf) check_finite<at::Half>(values, "features");
  }

 private:
  void check_sparse(const at::Tensor& features) const {
    check_column(features.crow_indices(), at::kLong, 1, "features: row starts");
    check_column(features.col_indices(), at::kLong, 1, "features: columns");
    const at::Tensor starts = features.crow_indices().contiguous();
    const at::Tensor columns = features.col_indices().contiguous();
    const auto* start = starts.const_data_ptr<std::int64_t>();
    const auto* column = columns.const_data_ptr<std::int64_t>();
    const std::int64_t rows = data_.num_nodes;
    check(starts.numel() == rows + 1 && start[0] == 0 && start[rows] == columns.numel() &&
              features.values().numel() == columns.numel(),
          "features: row starts do not fit {} rows and {} stored values", rows, columns.numel());
    for (std::int64_t row = 0; row < rows; ++row) {
      check(start[row] <= start[row + 1] && start[row + 1] <= columns.numel(),
            "features: row starts decrease after row {}", row);
      for (std::int64_t k = start[row]; k < start[row + 1]; ++k) {
        check(column[k] < features.size(1) && column[k] >= 0 &&
                  (k == start[row] || column[k] > column[k - 1]),
              "features: the columns of row {} do not ascend in [0, {})", row, features.size(1));
      }
    }
  }
};

class PartChecks : public DatasetCheck {
 public:
  using DatasetCheck::DatasetCheck;

  void run(const DatasetPart& part) const {
    const std::int64_t nodes = data_.num_nodes;
    check(part.index >= 0 && part.index < part.num_parts && part.hops >= 1,
          "part {} of {} with a halo of {} hops", part.index, part.num_parts, part.hops);
    check(data_.indptr.defined(), "a part has its edges as rows");
    for (const auto& [column, dtype, what] :
         {std::tuple{part.node_ids, at::kLong, "node_ids"},
          std::tuple{part.own_mask, at::kBool, "own_mask"},
          std::tuple{part.in_degrees, at::kLong, "in_degrees"},
          std::tuple{part.out_degrees, at::kLong, "out_degrees"}}) {
      check_column(column, dtype, 1, what);
      check(column.numel() == nodes, "{}: {} rows for {} nodes", what, column.numel(), nodes);
    }
    check_range(part.node_ids, part.num_nodes, "node_ids");
    check(nodes < 2 || part.node_ids.diff().gt(0).all().item<bool>(), "node_ids do not ascend");
    const at::Tensor in_part = data_.indptr.diff();
    check(
        in_part.le(part.in_degrees).all().item<bool>() &&
            in_part.eq(part.in_degrees).logical_or(part.own_mask.logical_not()).all().item<bool>(),
        "in_degrees: they do not fit the rows");
    check_range(part.out_degrees, part.num_edges + 1, "out_degrees");
    if (!data_.labels.defined()) return;
    const at::Tensor foreign = part.own_mask.logical_not().unsqueeze(1);
    for (const at::Tensor& mask : {data_.train_masks, data_.val_masks, data_.test_masks}) {
      check(!mask.logical_and(foreign).any().item<bool>(), "masks: a node of the halo is in one");
    }
  }
};

}  // namespace

void check_features(const Dataset& dataset) {
  FeatureChecks(dataset).run();
}

void check_part(const Dataset& dataset) {
  PartChecks(dataset).run(*dataset.part);
}

}  // namespace mezzo::data
