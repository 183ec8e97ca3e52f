#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "mezzo/core/type_list.h"

namespace mezzo {

/// What a task predicts something for.
enum class TaskTarget : std::uint8_t {
  kNode,
  kEdge,
  kGraph,  ///< of a set of graphs
  kLink,   ///< whether there is an edge between two nodes
};

/// The kind of a label.
enum class LabelKind : std::uint8_t {
  kClass,       ///< one class
  kMultiLabel,  ///< for each class whether the target belongs to it
  kNumbers,
};

/// A task: what has labels, and their kind.
struct Task {
  TaskTarget target = TaskTarget::kNode;
  LabelKind labels = LabelKind::kClass;

  constexpr bool operator==(const Task&) const = default;
};

struct NodeTarget {
  static constexpr TaskTarget kind = TaskTarget::kNode;
  static constexpr std::string_view name = "node";
};
struct EdgeTarget {
  static constexpr TaskTarget kind = TaskTarget::kEdge;
  static constexpr std::string_view name = "edge";
};
struct GraphTarget {
  static constexpr TaskTarget kind = TaskTarget::kGraph;
  static constexpr std::string_view name = "graph";
};
struct LinkTarget {
  static constexpr TaskTarget kind = TaskTarget::kLink;
  static constexpr std::string_view name = "link";
};
using TaskTargets = TypeList<NodeTarget, EdgeTarget, GraphTarget, LinkTarget>;

struct ClassLabel {
  static constexpr LabelKind kind = LabelKind::kClass;
  static constexpr std::string_view name = "class";
};
struct MultiLabel {
  static constexpr LabelKind kind = LabelKind::kMultiLabel;
  static constexpr std::string_view name = "labels";
};
struct NumbersLabel {
  static constexpr LabelKind kind = LabelKind::kNumbers;
  static constexpr std::string_view name = "regression";
};
using LabelKinds = TypeList<ClassLabel, MultiLabel, NumbersLabel>;

/// A member of Tasks; its name is "node-class", "node-labels", "edge-regression" and so on.
template <class Target, class Label>
struct TaskOf {
  static constexpr Task kind{Target::kind, Label::kind};

 private:
  static constexpr auto kText = [] {
    std::array<char, Target::name.size() + 1 + Label::name.size()> text{};
    const auto end = std::copy(Target::name.begin(), Target::name.end(), text.begin());
    *end = '-';
    std::copy(Label::name.begin(), Label::name.end(), end + 1);
    return text;
  }();

 public:
  static constexpr std::string_view name{kText.data(), kText.size()};
};

/// The links of a graph: one class, with an entry of 1 for an edge and 0 for a negative pair.
struct LinkTask {
  static constexpr Task kind{TaskTarget::kLink, LabelKind::kMultiLabel};
  static constexpr std::string_view name = "link";
};

using Tasks = TypeList<TaskOf<NodeTarget, ClassLabel>, TaskOf<NodeTarget, MultiLabel>,
                       TaskOf<NodeTarget, NumbersLabel>, TaskOf<EdgeTarget, ClassLabel>,
                       TaskOf<EdgeTarget, MultiLabel>, TaskOf<EdgeTarget, NumbersLabel>,
                       TaskOf<GraphTarget, ClassLabel>, TaskOf<GraphTarget, MultiLabel>,
                       TaskOf<GraphTarget, NumbersLabel>, LinkTask>;

/// The name of a task that a file has, as in Tasks: older files have "node-classes" for
/// "node-labels", and so for edges and graphs.
inline std::string task_name_of_file(std::string name) {
  constexpr std::string_view kOld = "-classes";
  if (name.ends_with(kOld)) name.replace(name.size() - kOld.size(), kOld.size(), "-labels");
  return name;
}

}  // namespace mezzo
