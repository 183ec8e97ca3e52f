#include "mezzo/train/predictions.h"

#include <cstdint>
#include <ostream>
#include <string>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "mezzo/data/mapped/folder_writer.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/trained_model.h"

namespace mezzo {
namespace {

/// The id of row i.
std::int64_t id_of(const Predictions& predictions, std::int64_t i) {
  return predictions.ids.defined() ? predictions.ids.const_data_ptr<std::int64_t>()[i] : i;
}

/// The text as a field of a CSV file: in quotes if it has a comma, a quote or an end of line.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

/// columns: float32 [M, C], whose headings are the letter and a number.
void write_columns(std::ostream& file, const Predictions& predictions, char letter,
                   const at::Tensor& columns) {
  const std::int64_t width = columns.size(1);
  const float* number = columns.const_data_ptr<float>();
  file << name_of(TaskTargets{}, predictions.target);
  for (std::int64_t c = 0; c < width; ++c) file << fmt::format(",{}{}", letter, c);
  file << '\n';
  for (std::int64_t i = 0; i < columns.size(0); ++i) {
    file << id_of(predictions, i);
    for (std::int64_t c = 0; c < width; ++c) file << fmt::format(",{}", *number++);
    file << '\n';
  }
}

}  // namespace

namespace detail {

Predictions predictions_of(const at::Tensor& logits, LabelKind labels) {
  Predictions predictions;
  if (labels == LabelKind::kNumbers) {
    predictions.numbers = logits.contiguous();
  } else if (labels == LabelKind::kMultiLabel) {
    predictions.classes = logits.gt(0).to(at::kByte).contiguous();
    predictions.probabilities = logits.sigmoid().contiguous();
  } else {
    const auto [largest, classes] = at::softmax(logits, 1).max(1);
    predictions.classes = classes.contiguous();
    predictions.probabilities = largest.contiguous();
  }
  return predictions;
}

}  // namespace detail

Predictions predict(const Dataset& dataset, const TrainedModel& trained,
                    const at::Tensor& targets) {
  const bool of_all = !targets.defined();
  const at::Tensor logits = of_all ? trained.logits(dataset) : trained.logits(dataset, targets);
  const Task task = trained.data.task;
  Predictions predictions = detail::predictions_of(logits, task.labels);
  predictions.target = task.target;
  if (!of_all) predictions.ids = targets.to(at::kCPU, at::kLong).contiguous();
  if (task.labels != LabelKind::kNumbers && dataset.num_classes == trained.data.num_classes) {
    predictions.class_names = dataset.class_names;
  }
  return predictions;
}

void write_csv(const std::string& path, const Predictions& predictions) {
  const bool are_numbers = predictions.numbers.defined();
  if (are_numbers || predictions.probabilities.dim() == 2) {
    replace_file(path, [&](std::ostream& file) {
      write_columns(file, predictions, are_numbers ? 'y' : 'p',
                    are_numbers ? predictions.numbers : predictions.probabilities);
    });
    return;
  }
  const std::int64_t* classes = predictions.classes.const_data_ptr<std::int64_t>();
  const float* probabilities = predictions.probabilities.const_data_ptr<float>();
  replace_file(path, [&](std::ostream& file) {
    const std::vector<std::string>& names = predictions.class_names;
    file << name_of(TaskTargets{}, predictions.target) << ",class,probability"
         << (names.empty() ? "\n" : ",name\n");
    for (std::int64_t i = 0; i < predictions.classes.size(0); ++i) {
      file << fmt::format("{},{},{}", id_of(predictions, i), classes[i], probabilities[i]);
      if (!names.empty()) file << ',' << csv_field(names[static_cast<std::size_t>(classes[i])]);
      file << '\n';
    }
  });
}

void write_npy(const std::string& path, const Predictions& predictions) {
  const at::Tensor& rows =
      predictions.numbers.defined() ? predictions.numbers : predictions.classes;
  const std::string header = data::npy_header(rows.scalar_type(), rows.sizes().vec());
  replace_file(path, [&](std::ostream& file) {
    file << header;
    file.write(static_cast<const char*>(rows.const_data_ptr()),
               static_cast<std::streamsize>(rows.nbytes()));
  });
}

}  // namespace mezzo
