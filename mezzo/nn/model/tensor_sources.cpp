#include "mezzo/nn/model/tensor_sources.h"

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "mezzo/core/error.h"

namespace mezzo::nn::detail {
namespace {

/// The names of the module's parameters and buffers.
std::vector<std::string> names_in(const torch::nn::Module& module, bool recurse) {
  std::vector<std::string> names = module.named_parameters(recurse).keys();
  const std::vector<std::string> buffers = module.named_buffers(recurse).keys();
  names.insert(names.end(), buffers.begin(), buffers.end());
  return names;
}

class SourceFinder {
 public:
  SourceFinder(const NamedTensors& in_file, const std::map<std::string, std::string>& paths)
      : in_file_(in_file), paths_(paths) {}

  /// own, in_file: what the names of the module's tensors begin with, here and in the file.
  void visit(const torch::nn::Module& module, const std::string& own, const std::string& in_file) {
    const std::string prefix = prefix_in_file(module, own, in_file);
    add_form(module, own, prefix);
    for (const std::string& name : names_in(module, /*recurse=*/false)) {
      sources_.try_emplace(own + name, TensorSource{{prefix + name}});
    }
    for (const auto& child : module.named_children()) {
      visit(*child.value(), own + child.key() + ".", child_prefix(module, child.key(), prefix));
    }
  }

  TensorSources finish() && {
    std::vector<std::string> unknown;
    for (const auto& [path, in_file] : paths_) {
      if (visited_.count(path) == 0) unknown.push_back(path);
    }
    MEZZO_CHECK(unknown.empty(), "load_state_dict: expected names of submodules, got [{}]",
                fmt::join(unknown, ", "));
    return std::move(sources_);
  }

 private:
  bool has_names(const std::string& prefix) const {
    const auto first = in_file_.lower_bound(prefix);
    return first != in_file_.end() && first->first.starts_with(prefix);
  }

  std::string prefix_in_file(const torch::nn::Module& module, const std::string& own,
                             std::string prefix) {
    const std::string path = own.empty() ? own : own.substr(0, own.size() - 1);
    visited_.insert(path);
    const auto mapped = paths_.find(path);
    if (mapped != paths_.end()) prefix = mapped->second.empty() ? "" : mapped->second + ".";
    // PyG's BatchNorm and DistributedDataParallel have their module under this name.
    const bool is_wrapped =
        has_names(prefix + "module.") && !module.named_children().contains("module");
    return is_wrapped ? prefix + "module." : prefix;
  }

  std::string child_prefix(const torch::nn::Module& module, const std::string& name,
                           const std::string& prefix) const {
    const std::string own = prefix + name + ".", pyg = pyg_child_name(module, name);
    if (pyg.empty()) return has_names(own) ? own : prefix;
    const bool is_pyg = pyg != name && has_names(prefix + pyg.substr(0, pyg.find('.')) + ".");
    return is_pyg ? prefix + pyg + "." : own;
  }

  /// Adds the tensors of a layer that may have other names.
  void add_form(const torch::nn::Module& layer, const std::string& own, const std::string& prefix) {
    std::vector<TensorSources> forms = other_forms(layer);
    if (forms.empty()) return;
    forms.insert(forms.begin(), TensorSources());
    const std::vector<std::string> names = names_in(layer, /*recurse=*/true);
    TensorSources best;
    std::pair<std::size_t, std::size_t> most;
    for (const TensorSources& form : forms) {
      TensorSources sources;
      for (const TensorSources& any : forms) {
        for (const std::string& name : names) {
          if (any.count(name) != 0) sources[name] = source_in(form, name, prefix);
        }
      }
      const auto found = count_found(sources);
      if (best.empty() || found > most) {
        best = std::move(sources);
        most = found;
      }
    }
    for (auto& [name, source] : best) sources_[own + name] = std::move(source);
  }

  static TensorSource source_in(const TensorSources& form, const std::string& name,
                                const std::string& prefix) {
    const auto listed = form.find(name);
    TensorSource source = listed == form.end() ? TensorSource{{name}} : listed->second;
    for (std::string& in_file : source.names) in_file.insert(0, prefix);
    return source;
  }

  /// How many of the tensors, and then of the names, the file has.
  std::pair<std::size_t, std::size_t> count_found(const TensorSources& sources) const {
    std::size_t tensors = 0;
    std::set<std::string> names;
    for (const auto& [name, source] : sources) {
      bool is_complete = true;
      for (const std::string& in_file : source.names) {
        if (in_file_.count(in_file) != 0) {
          names.insert(in_file);
        } else {
          is_complete = false;
        }
      }
      if (is_complete) ++tensors;
    }
    return {tensors, names.size()};
  }

  const NamedTensors& in_file_;
  const std::map<std::string, std::string>& paths_;
  std::set<std::string> visited_;
  TensorSources sources_;
};

}  // namespace

TensorSources sources_in_file(const torch::nn::Module& module, const NamedTensors& in_file,
                              const std::map<std::string, std::string>& paths) {
  SourceFinder finder(in_file, paths);
  finder.visit(module, "", "");
  return std::move(finder).finish();
}

}  // namespace mezzo::nn::detail
