#include "mezzo/train/inference.h"

#include <algorithm>
#include <ostream>
#include <string>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/data/mapped/folder_writer.h"
#include "mezzo/train/files/files.h"
#include "mezzo/train/problem.h"

namespace mezzo {
namespace {

at::Tensor logits_of(const Checkpoint& checkpoint, const Dataset& dataset, const Problem& problem) {
  nn::Model model = model_of(checkpoint, problem);
  at::Tensor logits = evaluate_logits(model, problem, checkpoint.options);
  const EvaluatedNodes nodes = evaluated_nodes(logits, dataset);
  if (nodes.not_finite > 0) {
    detail::raise<NumericError>("the model's outputs for {} of {} nodes are not finite in {}",
                                nodes.not_finite, nodes.count,
                                amp::to_string(checkpoint.options.precision));
  }
  return logits;
}

/// The text as a field of a CSV file: in quotes if it has a comma, a quote or an end of line.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

/// Throws InvalidArgument that names the first ids outside [0, num_nodes).
void check_nodes(const at::Tensor& nodes, std::int64_t num_nodes) {
  MEZZO_CHECK(nodes.dim() == 1 && nodes.scalar_type() == at::kLong && nodes.is_cpu(),
              "nodes: expected int64 [M] on the CPU, got {} {}", nodes.toString(),
              fmt::join(nodes.sizes(), ", "));
  const at::Tensor outside =
      nodes.masked_select(nodes.lt(0).logical_or(nodes.ge(num_nodes))).contiguous();
  constexpr std::int64_t kMostListed = 5;
  const std::int64_t listed = std::min(outside.numel(), kMostListed);
  const auto* first = outside.const_data_ptr<std::int64_t>();
  MEZZO_CHECK(
      listed == 0, "nodes: expected ids in [0, {}), got {}{}", num_nodes,
      fmt::join(first, first + listed, ", "),
      listed < outside.numel() ? fmt::format(" and {} more", outside.numel() - listed) : "");
}

void write_probabilities(std::ostream& file, const Predictions& predictions) {
  const std::int64_t classes = predictions.probabilities.size(1);
  const std::int64_t* node = predictions.nodes.const_data_ptr<std::int64_t>();
  const float* probability = predictions.probabilities.const_data_ptr<float>();
  file << "node";
  for (std::int64_t c = 0; c < classes; ++c) file << fmt::format(",p{}", c);
  file << '\n';
  for (std::int64_t i = 0; i < predictions.nodes.size(0); ++i) {
    file << node[i];
    for (std::int64_t c = 0; c < classes; ++c) file << fmt::format(",{}", *probability++);
    file << '\n';
  }
}

}  // namespace

Scores evaluate(const Dataset& dataset, const Checkpoint& checkpoint) {
  const Problem problem = make_problem(dataset, checkpoint.options);
  return score_logits(logits_of(checkpoint, dataset, problem), problem);
}

Predictions predict(const Dataset& dataset, const Checkpoint& checkpoint, const at::Tensor& nodes) {
  if (nodes.defined()) check_nodes(nodes, dataset.num_nodes);
  MEZZO_CHECK(
      !dataset.part,
      "dataset: {} is a part of a data set, whose halo cannot be predicted; expected the whole",
      dataset.origin);
  MEZZO_CHECK(dataset.num_classes <= checkpoint.data.num_classes,
              "dataset: the model of the checkpoint has {} classes, the data have {}",
              checkpoint.data.num_classes, dataset.num_classes);
  Problem problem = make_inference_problem(dataset, checkpoint.options);
  problem.num_classes = checkpoint.data.num_classes;
  problem.is_multi_label =
      dataset.labels.defined() ? dataset.is_multi_label() : checkpoint.data.is_multi_label;
  at::Tensor logits = logits_of(checkpoint, dataset, problem);
  if (nodes.defined()) logits = logits.index_select(0, nodes.to(logits.device()));
  Predictions predictions;
  predictions.nodes = nodes.defined() ? nodes.contiguous() : at::arange(dataset.num_nodes);
  if (problem.is_multi_label) {
    predictions.classes = logits.gt(0).to(at::kByte).cpu().contiguous();
    predictions.probabilities = logits.sigmoid().cpu().contiguous();
  } else {
    const auto [largest, classes] = at::softmax(logits, 1).max(1);
    predictions.classes = classes.cpu().contiguous();
    predictions.probabilities = largest.cpu().contiguous();
  }
  if (dataset.num_classes == problem.num_classes) predictions.class_names = dataset.class_names;
  return predictions;
}

void write_csv(const std::string& path, const Predictions& predictions) {
  if (predictions.probabilities.dim() == 2) {
    replace_file(path, [&](std::ostream& file) { write_probabilities(file, predictions); });
    return;
  }
  const std::int64_t* nodes = predictions.nodes.const_data_ptr<std::int64_t>();
  const std::int64_t* classes = predictions.classes.const_data_ptr<std::int64_t>();
  const float* probabilities = predictions.probabilities.const_data_ptr<float>();
  replace_file(path, [&](std::ostream& file) {
    const std::vector<std::string>& names = predictions.class_names;
    file << "node,class,probability" << (names.empty() ? "\n" : ",name\n");
    for (std::int64_t i = 0; i < predictions.classes.size(0); ++i) {
      file << fmt::format("{},{},{}", nodes[i], classes[i], probabilities[i]);
      if (!names.empty()) file << ',' << csv_field(names[static_cast<std::size_t>(classes[i])]);
      file << '\n';
    }
  });
}

void write_npy(const std::string& path, const Predictions& predictions) {
  const at::Tensor& classes = predictions.classes;
  const std::string header = data::npy_header(classes.scalar_type(), classes.sizes().vec());
  replace_file(path, [&](std::ostream& file) {
    file << header;
    file.write(static_cast<const char*>(classes.const_data_ptr()),
               static_cast<std::streamsize>(classes.nbytes()));
  });
}

}  // namespace mezzo
