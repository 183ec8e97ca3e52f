#include <cmath>
#include <map>

#include "mezzo/data/checks/checks.h"

namespace mezzo::data {
namespace {

class TargetChecks : public DatasetCheck {
 public:
  using DatasetCheck::DatasetCheck;

  void run() const {
    if (data_.labels.defined()) {
      check_labels();
      check_masks();
    } else {
      check_unlabelled();
    }
    check_links();
  }

 private:
  void check_unlabelled() const {
    check(data_.num_classes == 0 && data_.class_names.empty(),
          "labels is undefined, but it has {} classes", data_.num_classes);
    check(!data_.train_masks.defined() && !data_.val_masks.defined() && !data_.test_masks.defined(),
          "labels is undefined, but it has masks");
  }

  void check_labels() const {
    check(data_.num_classes > 0, "it has no classes");
    check(fits(data_.metric, data_.task(), data_.num_classes),
          "the metric {} does not fit the task {} of {} classes", metric_name(data_.metric),
          name_of(Tasks{}, data_.task()), data_.num_classes);
    switch (data_.task().labels) {
      case LabelKind::kClass:
        check_one_label_a_target();
        break;
      case LabelKind::kMultiLabel:
        check_entries();
        break;
      case LabelKind::kNumbers:
        check_numbers();
    }
    const auto num_names = static_cast<std::int64_t>(data_.class_names.size());
    check(num_names == 0 || num_names == data_.num_classes, "{} class names for {} classes",
          num_names, data_.num_classes);
  }

  void check_one_label_a_target() const {
    check_column(data_.labels, at::kLong, 1, "labels");
    check(data_.labels.numel() == data_.num_targets(), "{} labels for {} {}s", data_.labels.numel(),
          data_.num_targets(), target());
    check_label_range();
  }

  /// Of labels with a column a class or number.
  void check_label_columns(at::ScalarType dtype) const {
    check_column(data_.labels, dtype, 2, "labels");
    check(data_.labels.size(0) == data_.num_targets() && data_.labels.size(1) == data_.num_classes,
          "labels: expected shape [{}, {}], got {}", data_.num_targets(), data_.num_classes,
          shape_text(data_.labels));
  }

  void check_numbers() const {
    check_label_columns(at::kFloat);
    const at::Tensor values = data_.labels.contiguous();
    const auto* value = values.const_data_ptr<float>();
    const std::int64_t bad =
        first_bad(values.numel(), [&](std::int64_t i) { return std::isinf(value[i]); });
    check(bad == values.numel(), "labels: {} {} has inf, expected numbers, or nan if unknown",
          target(), bad / data_.num_classes);
  }

  void check_entries() const {
    check_label_columns(at::kByte);
    const std::int64_t classes = data_.num_classes;
    const at::Tensor values = data_.labels.contiguous();
    const auto* value = values.const_data_ptr<std::uint8_t>();
    const std::int64_t bad = first_bad(
        values.numel(), [&](std::int64_t i) { return value[i] > 1 && value[i] != kNoEntry; });
    check(bad == values.numel(),
          "labels: {} {} has {} for class {}, expected 0, 1, or {} if unknown", target(),
          bad / classes, bad == values.numel() ? 0 : int{value[bad]}, bad % classes, kNoEntry);
  }

  void check_label_range() const {
    const at::Tensor values = data_.labels.contiguous();
    const auto* value = values.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      check(value[i] >= kNoLabel && value[i] < data_.num_classes,
            "labels: item {} is {}, expected one in [0, {}), or {} for none", i, value[i],
            data_.num_classes, kNoLabel);
    }
  }

  void check_masks() const {
    check_column(data_.train_masks, at::kBool, 2, "train masks");
    check_column(data_.val_masks, at::kBool, 2, "val masks");
    check_column(data_.test_masks, at::kBool, 2, "test masks");
    const std::int64_t splits = data_.train_masks.size(1);
    check(splits > 0, "it has no split");
    for (const at::Tensor& mask : {data_.train_masks, data_.val_masks, data_.test_masks}) {
      check(mask.size(0) == data_.num_targets() && mask.size(1) == splits,
            "masks: expected shape [{}, {}], got {}", data_.num_targets(), splits,
            shape_text(mask));
    }
    const at::Tensor times = data_.train_masks.to(at::kByte)
                                 .add_(data_.val_masks.to(at::kByte))
                                 .add_(data_.test_masks.to(at::kByte));
    const at::Tensor twice = times.gt(1).nonzero();
    if (twice.size(0) > 0) {
      const auto row = twice[0][0].item<std::int64_t>(), split = twice[0][1].item<std::int64_t>();
      const auto is_in = [&](const at::Tensor& mask) { return mask[row][split].item<bool>(); };
      check(false, "masks: {} {} is in two masks of split {}, {} and {}", target(), row, split,
            is_in(data_.train_masks) ? "train" : "val", is_in(data_.test_masks) ? "test" : "val");
    }
    const at::Tensor unlabelled = data_.has_label().logical_not().unsqueeze(1);
    const at::Tensor used = unlabelled.logical_and(times.gt(0)).nonzero();
    check(used.size(0) == 0, "masks: {} {} has no label, but is in a mask of split {}", target(),
          used.size(0) == 0 ? 0 : used[0][0].item<std::int64_t>(),
          used.size(0) == 0 ? 0 : used[0][1].item<std::int64_t>());
  }

  void check_links() const {
    bool any = data_.message_mask.defined();
    for_each_negatives(data_.negatives, [&](const std::string& /*name*/, const at::Tensor& nodes) {
      any = any || nodes.defined();
    });
    if (!any) return;
    check(data_.target == TaskTarget::kLink && data_.num_splits() == 1,
          "it has a message mask or negative pairs, expected links of one split, got {}s of {}",
          target(), data_.num_splits());
    check_message_mask();
    const auto links = [](const at::Tensor& mask) { return mask.sum().item<std::int64_t>(); };
    const std::map<std::string_view, std::int64_t> rows = {{"train", links(data_.train_masks)},
                                                           {"val", links(data_.val_masks)},
                                                           {"test", links(data_.test_masks)}};
    for_each_negatives(data_.negatives, [&](const std::string& name, const at::Tensor& nodes) {
      const std::int64_t of_role = rows.at(std::string_view(name).substr(0, name.find('_')));
      if (nodes.defined()) check_negatives(nodes, name.ends_with("s") ? 2 : of_role, name.c_str());
    });
  }

  void check_message_mask() const {
    const at::Tensor& mask = data_.message_mask;
    if (!mask.defined()) return;
    check_column(mask, at::kBool, 1, "message mask");
    check(mask.numel() == data_.num_edges(), "message mask: {} rows for {} edges", mask.numel(),
          data_.num_edges());
    const at::Tensor held_out = data_.val_masks.logical_or(data_.test_masks).squeeze(1);
    const at::Tensor bad = mask.logical_and(held_out).nonzero();
    check(bad.size(0) == 0, "message mask: edge {} carries messages, but is held out",
          bad.size(0) == 0 ? 0 : bad[0][0].item<std::int64_t>());
  }

  void check_negatives(const at::Tensor& nodes, std::int64_t rows, const char* what) const {
    check_column(nodes, at::kLong, 2, what);
    check(nodes.size(0) == rows && nodes.size(1) > 0,
          "{}: expected shape [{}, K] with K > 0, got {}", what, rows, shape_text(nodes));
    check_range(nodes, data_.num_nodes, what);
  }
};

}  // namespace

void check_targets(const Dataset& dataset) {
  TargetChecks(dataset).run();
}

}  // namespace mezzo::data
