#include "mezzo/predict/predictor.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/graph.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/predict/arguments.h"
#include "mezzo/predict/frozen_model.h"
#include "mezzo/predict/live_model.h"
#include "mezzo/runtime/one_thread.h"
#include "mezzo/train/data_checks.h"
#include "mezzo/train/links.h"
#include "mezzo/train/problem.h"

namespace mezzo {
namespace {

using detail::FrozenModel;
using detail::LiveEdges;
using detail::LiveGraph;
using detail::LiveModel;
using detail::NodeNumbers;

/// A shared mutex whose writers wait for the running readers alone: with many readers the system's
/// may never be free.
class FairMutex {
 public:
  [[nodiscard]] std::shared_lock<std::shared_mutex> read() {
    const std::lock_guard turn(turn_);
    return std::shared_lock(mutex_);
  }
  [[nodiscard]] std::unique_lock<std::shared_mutex> write() {
    const std::lock_guard turn(turn_);
    return std::unique_lock(mutex_);
  }

 private:
  std::mutex turn_;
  std::shared_mutex mutex_;
};

/// Scratch for calls at the same time.
class NumbersPool {
 public:
  /// Scratch of one call, returned to the pool at its end.
  class Lease {
   public:
    explicit Lease(NumbersPool& pool) : pool_(pool), numbers_(pool.take()) {}
    ~Lease() { pool_.give(std::move(numbers_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    NodeNumbers& operator*() { return *numbers_; }

   private:
    NumbersPool& pool_;
    std::unique_ptr<NodeNumbers> numbers_;
  };

  std::int64_t memory_bytes() {
    const std::lock_guard lock(mutex_);
    std::int64_t bytes = 0;
    for (const auto& numbers : free_) bytes += numbers->table_bytes() + numbers->buffer_bytes();
    return bytes;
  }

 private:
  std::unique_ptr<NodeNumbers> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      free_.reserve(++size_);  // give() must not throw
      return std::make_unique<NodeNumbers>();
    }
    std::unique_ptr<NodeNumbers> numbers = std::move(free_.back());
    free_.pop_back();
    return numbers;
  }
  void give(std::unique_ptr<NodeNumbers> numbers) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(numbers));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<NodeNumbers>> free_;
  std::size_t size_ = 0;
};

/// What a const function runs in.
struct ReadScope {
  explicit ReadScope(const FrozenModel& model) : scope(model) {}
  detail::OneThread one_thread;
  FrozenModel::Scope scope;
};

}  // namespace

/// What a Predictor owns. Functions with arguments check them.
class Predictor::State {
 public:
  State(const nn::Model& source, amp::Precision precision, NumberScale number_scale)
      : model(source, precision), scale(std::move(number_scale)) {}

  void set_graph(const detail::PredictorData& data, bool resident) {
    live = detail::live_model(model, data, resident);
    normalize_features = data.normalize_features;
  }

  /// Calls read(scratch) beside other readers.
  template <class Read>
  at::Tensor read(const Read& read) {
    const auto lock = mutex.read();
    NumbersPool::Lease scratch(pool);
    const ReadScope scope(model);
    return read(*scratch);
  }

  at::Tensor predict_nodes(const at::Tensor& nodes, const SampledNeighbors* sampled);
  /// In the units of the labels.
  at::Tensor outputs(const at::Tensor& rows) const {
    return in_own_units(rows.to(at::kFloat), scale);
  }
  at::Tensor no_outputs() const { return at::empty({0, model.options().out_features}); }
  void check_graph() const {
    MEZZO_CHECK(live != nullptr, "Predictor: expected a graph, this one was made without");
  }
  void check_targets(TaskTarget first, TaskTarget second, std::string_view call) const {
    check_graph();
    const TaskTarget target = model.options().target;
    MEZZO_CHECK(target == first || target == second,
                "{}: expected a model for {}s, got one for {}s", call,
                name_of(TaskTargets{}, first), name_of(TaskTargets{}, target));
  }
  /// Features as the tables have them.
  at::Tensor prepared(std::string_view call, const at::Tensor& features) const {
    return detail::prepared_features(call, features, model, normalize_features);
  }

  FrozenModel model;
  NumberScale scale;
  bool normalize_features = false;
  std::unique_ptr<LiveModel> live;
  FairMutex mutex;
  NumbersPool pool;
};

at::Tensor Predictor::State::predict_nodes(const at::Tensor& nodes,
                                           const SampledNeighbors* sampled) {
  check_targets(TaskTarget::kNode, TaskTarget::kNode, "predict");
  if (sampled != nullptr) detail::check_fanouts(sampled->fanouts, model.num_layers());
  return read([&](NodeNumbers& scratch) {
    at::Tensor ids = detail::node_ids("predict", "nodes", nodes, live->graph().num_nodes());
    if (ids.numel() == 0) return no_outputs();
    const at::Tensor rows = live->rows_of(ids, sampled, scratch);
    return outputs(rows.index_select(0, ids));
  });
}

Predictor::Predictor(const TrainedModel& trained, const Dataset& data, PredictorOptions options)
    : state_(std::make_unique<State>(trained.model,
                                     options.precision.value_or(trained.options.precision),
                                     trained.data.number_scale)) {
  check_fits(trained, data);
  MEZZO_CHECK(trained.data.task.target != TaskTarget::kGraph,
              "Predictor: expected a model for nodes, edges or links for a graph that changes, got "
              "one for graphs; make it without data and call predict(input, x)");
  const bool of_links = trained.data.task.target == TaskTarget::kLink;
  const Dataset messages = of_links ? with_message_edges(data, trained.options.split_index) : data;
  const bool reads_rows = nn::takes_edge_features(trained.options.model);
  state_->set_graph({.graph = topology_of(messages),
                     .features = data.features,
                     .edge_rows = reads_rows ? messages.edge_features : messages.edge_weights,
                     .self_loops = uses_self_loops(trained.options),
                     .normalize_features = trained.options.normalize_features},
                    options.resident);
}

Predictor::Predictor(const nn::Model& model, const Topology& graph, const at::Tensor& features,
                     PredictorOptions options, const at::Tensor& edge_rows)
    : state_(std::make_unique<State>(model, options.precision.value_or(amp::Precision::kFloat32),
                                     NumberScale{})) {
  state_->set_graph({.graph = graph, .features = features, .edge_rows = edge_rows},
                    options.resident);
}

Predictor::Predictor(const TrainedModel& trained, PredictorOptions options)
    : state_(std::make_unique<State>(trained.model,
                                     options.precision.value_or(trained.options.precision),
                                     trained.data.number_scale)) {
  MEZZO_CHECK(!options.resident, "Predictor: expected resident off without a graph, got it on");
}

Predictor::~Predictor() = default;
Predictor::Predictor(Predictor&&) noexcept = default;
Predictor& Predictor::operator=(Predictor&&) noexcept = default;

at::Tensor Predictor::predict() const {
  state_->check_targets(TaskTarget::kNode, TaskTarget::kNode, "predict");
  return state_->read(
      [&](NodeNumbers& scratch) { return state_->outputs(state_->live->rows_of_all(scratch)); });
}

at::Tensor Predictor::predict(const at::Tensor& nodes) const {
  return state_->predict_nodes(nodes, nullptr);
}

at::Tensor Predictor::predict(const at::Tensor& nodes, const SampledNeighbors& sampled) const {
  return state_->predict_nodes(nodes, &sampled);
}

at::Tensor Predictor::predict_edges(const at::Tensor& src, const at::Tensor& dst,
                                    const at::Tensor& rows) const {
  constexpr auto kCall = "predict_edges";
  const State& state = *state_;
  state.check_targets(TaskTarget::kEdge, TaskTarget::kLink, kCall);
  return state_->read([&](NodeNumbers& scratch) {
    const std::int64_t num_nodes = state.live->graph().num_nodes();
    const at::Tensor from = detail::node_ids(kCall, "src", src, num_nodes);
    const at::Tensor to = detail::node_ids(kCall, "dst", dst, num_nodes);
    const std::int64_t count = from.numel();
    MEZZO_CHECK(to.numel() == count, "{}: expected as many src as dst, got {} and {}", kCall, count,
                to.numel());
    const nn::ModelOptions& model = state.model.options();
    const at::Tensor of_pairs = detail::checked_pair_rows(kCall, rows, count, model);
    if (count == 0) return state.no_outputs();
    at::Tensor ends = at::cat({from, to});
    const at::Tensor of_nodes = state.live->rows_of(ends, nullptr, scratch);
    nn::HeadTargets targets;
    targets.edges = Topology::from_coo(ends.narrow(0, 0, count), ends.narrow(0, count, count),
                                       of_nodes.size(0), of_nodes.size(0));
    (model.target == TaskTarget::kEdge ? targets.edge_features : targets.edge_types) = of_pairs;
    return state.outputs(state.model.head(of_nodes, targets));
  });
}

at::Tensor Predictor::predict(const nn::ModelInput& input, const at::Tensor& x) const {
  const ReadScope scope(state_->model);
  MEZZO_CHECK(x.defined() && at::isFloatingType(x.scalar_type()),
              "predict: expected floating x, got {}", detail::describe(x));
  return state_->outputs(state_->model.forward(input, x.to(at::kFloat)));
}

void Predictor::add_edges(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& rows) {
  state_->check_graph();
  const auto lock = state_->mutex.write();
  LiveModel& live = *state_->live;
  const detail::CheckedEdges edges("add_edges", src, dst, live.graph().num_nodes());
  const at::Tensor checked = detail::checked_edge_rows("add_edges", rows, edges.size(),
                                                       live.graph().row_width(), live.edge_read());
  live.add_edges(edges.with_rows(checked));
}

void Predictor::remove_edges(const at::Tensor& src, const at::Tensor& dst) {
  state_->check_graph();
  const auto lock = state_->mutex.write();
  LiveModel& live = *state_->live;
  const detail::CheckedEdges checked("remove_edges", src, dst, live.graph().num_nodes());
  const LiveEdges edges = checked.with_rows({});
  const std::int64_t missing = live.graph().find_missing(edges);
  if (missing >= 0) {
    const auto i = static_cast<std::size_t>(missing);
    detail::raise<InvalidArgument>(
        "remove_edges: expected an edge of the graph for each pair, got {} to {} more often than "
        "it has such edges",
        edges.src[i], edges.dst[i]);
  }
  live.remove_edges(edges);
}

void Predictor::set_features(const at::Tensor& nodes, const at::Tensor& features) {
  constexpr auto kCall = "set_features";
  state_->check_graph();
  const auto lock = state_->mutex.write();
  const at::Tensor ids = detail::node_ids(kCall, "nodes", nodes, state_->live->graph().num_nodes());
  const at::Tensor rows = state_->prepared(kCall, features);
  MEZZO_CHECK(rows.size(0) == ids.numel(), "{}: expected a row for each of {} nodes, got {}", kCall,
              ids.numel(), rows.size(0));
  detail::check_distinct(kCall, ids);
  state_->live->set_features(detail::span_of<std::int32_t>(ids), rows);
}

std::int64_t Predictor::add_nodes(const at::Tensor& features) {
  state_->check_graph();
  const auto lock = state_->mutex.write();
  const at::Tensor rows = state_->prepared("add_nodes", features);
  const std::int64_t first = state_->live->graph().num_nodes();
  detail::check_node_count("add_nodes", first + rows.size(0));
  state_->live->add_nodes(rows);
  return first;
}

void Predictor::refresh() const {
  state_->check_graph();
  const auto lock = state_->mutex.read();
  const FrozenModel::Scope scope(state_->model);
  state_->live->refresh();
}

at::Tensor Predictor::in_neighbors(std::int64_t node) const {
  state_->check_graph();
  const auto lock = state_->mutex.read();
  const LiveGraph& graph = state_->live->graph();
  MEZZO_CHECK(node >= 0 && node < graph.num_nodes(),
              "in_neighbors: expected a node in [0, {}), got {}", graph.num_nodes(), node);
  const std::span<const detail::LiveEdge> edges = graph.in_edges(node);
  at::Tensor sources = at::empty({static_cast<std::int64_t>(edges.size())}, at::kLong);
  std::transform(edges.begin(), edges.end(), sources.mutable_data_ptr<std::int64_t>(),
                 [](const detail::LiveEdge& edge) { return edge.node; });
  return sources;
}

std::int64_t Predictor::num_nodes() const {
  state_->check_graph();
  const auto lock = state_->mutex.read();
  return state_->live->graph().num_nodes();
}

std::int64_t Predictor::num_edges() const {
  state_->check_graph();
  const auto lock = state_->mutex.read();
  return state_->live->graph().num_edges();
}

std::int64_t Predictor::memory_bytes() const {
  const auto lock = state_->mutex.read();
  const std::int64_t of_graph = state_->live ? state_->live->memory_bytes() : 0;
  return state_->model.memory_bytes() + of_graph + state_->pool.memory_bytes();
}

}  // namespace mezzo
