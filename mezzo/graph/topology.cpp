#include "mezzo/graph/topology.h"

#include <array>
#include <map>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "mezzo/core/error.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/lazy.h"
#include "mezzo/graph/topology_build.h"

namespace mezzo {
namespace {

at::Tensor moved(const at::Tensor& tensor, at::Device device) {
  return tensor.defined() ? tensor.to(device) : tensor;
}

detail::EdgeList moved(const detail::EdgeList& edges, at::Device device) {
  return {moved(edges.src, device), moved(edges.dst, device)};
}

Adjacency moved(const Adjacency& rows, at::Device device) {
  return {moved(rows.indptr, device), moved(rows.indices, device), moved(rows.edge_ids, device),
          rows.longest_row};
}

bool moved(bool fact, at::Device /*device*/) {
  return fact;
}

struct Shape {
  std::int64_t num_src, num_dst, num_edges;
  at::Device device;
  at::ScalarType id_dtype;
};

/// The arrays of one structure in one direction. Initialized with edges, with rows by source, or
/// with an origin: the same structure on the CPU. Arrays that exist at the origin on first use are
/// copied from it; the others are built on this device.
class Core {
 public:
  explicit Core(const Shape& shape, std::shared_ptr<Core> origin = nullptr)
      : shape_(shape), origin_(std::move(origin)) {}

  void give(detail::EdgeList edges) { coo_.put(std::move(edges)); }
  void give(Adjacency rows) { csr_.put(std::move(rows)); }

  const Shape& shape() const { return shape_; }
  const std::shared_ptr<Core>& origin() const { return origin_; }

  const detail::EdgeList& coo() {
    return built(&Core::coo_, [this] { return detail::expand_rows(csr()); });
  }
  const Adjacency& csr() {
    return built(&Core::csr_,
                 [this] { return detail::sort_edges(coo().src, coo().dst, shape_.num_src); });
  }
  const Adjacency& csc() {
    return built(&Core::csc_,
                 [this] { return detail::sort_edges(coo().dst, coo().src, shape_.num_dst); });
  }

  const at::Tensor& csr_entries() {
    return csr_entries_.get([this] { return detail::inverted(csr().edge_ids); });
  }
  const at::Tensor& csc_entries() {
    return csc_entries_.get([this] { return detail::inverted(csc().edge_ids); });
  }
  const at::Tensor& csr_entries_by_csc() {
    return by_csc_.get([this] { return detail::composed(csr_entries(), csc().edge_ids); });
  }
  const at::Tensor& csc_entries_by_csr() {
    return by_csr_.get([this] { return detail::composed(csc_entries(), csr().edge_ids); });
  }

  at::Tensor out_degrees() {
    if (there_already(&Core::csr_) != nullptr) return csr().indptr.diff();
    return detail::count_ids(coo().src, shape_.num_src);
  }
  at::Tensor in_degrees() {
    if (there_already(&Core::csc_) != nullptr) return csc().indptr.diff();
    const bool spares_edges = there_already(&Core::csr_) != nullptr;
    return detail::count_ids(spares_edges ? csr().indices : coo().dst, shape_.num_dst);
  }
  at::Tensor in_factors(DegreePower power, at::ScalarType dtype) {
    const auto compute = [&] { return detail::degree_factors(in_degrees(), power, dtype); };
    return dtype == at::kFloat ? in_factors_[index_of(power)].get(compute) : compute();
  }
  at::Tensor out_factors(DegreePower power, at::ScalarType dtype) {
    const auto compute = [&] { return detail::degree_factors(out_degrees(), power, dtype); };
    return dtype == at::kFloat ? out_factors_[index_of(power)].get(compute) : compute();
  }
  bool has_zero_in_degree() {
    return built(&Core::zero_in_, [this] { return (in_degrees() == 0).any().item<bool>(); });
  }
  bool has_zero_out_degree() {
    return built(&Core::zero_out_, [this] { return (out_degrees() == 0).any().item<bool>(); });
  }

  /// A copy on the CPU with the arrays built so far.
  std::shared_ptr<Core> on_host() const {
    Shape shape = shape_;
    shape.device = at::kCPU;
    auto host = std::make_shared<Core>(shape);
    if (const auto* edges = coo_.peek()) host->coo_.put(moved(*edges, at::kCPU));
    if (const auto* rows = csr_.peek()) host->csr_.put(moved(*rows, at::kCPU));
    if (const auto* rows = csc_.peek()) host->csc_.put(moved(*rows, at::kCPU));
    return host;
  }

  std::int64_t memory_bytes() const;

 private:
  using Factors = std::array<detail::Lazy<at::Tensor>, 2>;  // float32, by DegreePower

  static std::size_t index_of(DegreePower power) { return static_cast<std::size_t>(power); }
  /// A member's value, here or at the origin, or nullptr if it is not built.
  template <class T>
  const T* there_already(detail::Lazy<T> Core::*member) const {
    const T* const here = (this->*member).peek();
    return here == nullptr && origin_ ? ((*origin_).*member).peek() : here;
  }
  /// A member's value: copied from the origin if it exists there, else from `build`.
  template <class T, class Build>
  const T& built(detail::Lazy<T> Core::*member, const Build& build) {
    return (this->*member).get([&] {
      const T* const there = there_already(member);
      return there != nullptr ? moved(*there, shape_.device) : build();
    });
  }

  const Shape shape_;
  const std::shared_ptr<Core> origin_;
  detail::Lazy<detail::EdgeList> coo_;
  detail::Lazy<Adjacency> csr_, csc_;
  detail::Lazy<at::Tensor> csr_entries_, csc_entries_, by_csc_, by_csr_;
  detail::Lazy<bool> zero_in_, zero_out_;
  Factors in_factors_, out_factors_;
};

std::int64_t Core::memory_bytes() const {
  std::map<const void*, std::size_t> arrays;  // by address: the formats share some
  const auto add = [&](const at::Tensor& array) {
    if (array.defined()) arrays[array.const_data_ptr()] = array.nbytes();
  };
  if (const auto* edges = coo_.peek()) {
    add(edges->src);
    add(edges->dst);
  }
  for (const Adjacency* rows : {csr_.peek(), csc_.peek()}) {
    if (rows == nullptr) continue;
    add(rows->indptr);
    add(rows->indices);
    add(rows->edge_ids);
  }
  for (const at::Tensor* entries :
       {csr_entries_.peek(), csc_entries_.peek(), by_csc_.peek(), by_csr_.peek()}) {
    if (entries != nullptr) add(*entries);
  }
  for (const Factors* factors : {&in_factors_, &out_factors_}) {
    for (const auto& kept : *factors) {
      if (const at::Tensor* array = kept.peek()) add(*array);
    }
  }
  std::int64_t bytes = 0;
  for (const auto& [address, size] : arrays) bytes += static_cast<std::int64_t>(size);
  return bytes;
}

std::shared_ptr<Core> core_from_edges(const at::Tensor& src, const at::Tensor& dst,
                                      std::int64_t num_src, std::int64_t num_dst, IdWidth width) {
  constexpr std::string_view kOperation = "from_coo";
  const c10::InferenceMode no_inference(false);
  const at::Tensor sources = detail::check_vector(kOperation, "src", src);
  detail::check_beside(kOperation, "dst", dst, "src", src);
  const at::Tensor destinations = detail::check_vector(kOperation, "dst", dst);
  detail::check_length(kOperation, "dst", destinations, "src", sources);
  const at::ScalarType dtype =
      detail::choose_id_dtype(kOperation, width, num_src, num_dst, sources.numel());
  detail::check_range(kOperation, "src", sources, num_src);
  detail::check_range(kOperation, "dst", destinations, num_dst);
  auto core =
      std::make_shared<Core>(Shape{num_src, num_dst, sources.numel(), sources.device(), dtype});
  core->give(detail::EdgeList{sources.to(dtype), destinations.to(dtype)});
  return core;
}

/// Rows are sources. `num_others`: upper bound of the indices.
std::shared_ptr<Core> core_from_rows(std::string_view operation, const at::Tensor& indptr,
                                     const at::Tensor& indices, std::int64_t num_others,
                                     const at::Tensor& edge_ids, IdWidth width) {
  const c10::InferenceMode no_inference(false);
  Adjacency rows;
  rows.indptr = detail::check_vector(operation, "indptr", indptr).to(at::kLong);
  detail::check_beside(operation, "indices", indices, "indptr", indptr);
  rows.indices = detail::check_vector(operation, "indices", indices);
  const std::int64_t num_edges = rows.indices.numel();
  rows.longest_row = detail::check_indptr(operation, rows.indptr, num_edges);
  const std::int64_t num_rows = rows.indptr.numel() - 1;
  const at::ScalarType dtype =
      detail::choose_id_dtype(operation, width, num_rows, num_others, num_edges);
  detail::check_range(operation, "indices", rows.indices, num_others);

  auto order = detail::EntryOrder::kIdentity;
  if (edge_ids.defined()) {
    detail::check_beside(operation, "edge_ids", edge_ids, "indptr", indptr);
    rows.edge_ids = detail::check_vector(operation, "edge_ids", edge_ids);
    detail::check_length(operation, "edge_ids", rows.edge_ids, "indices", rows.indices);
    order = detail::check_edge_ids(operation, rows.indptr, rows.edge_ids);
  }
  rows.indices = rows.indices.to(dtype);
  rows.edge_ids = order == detail::EntryOrder::kIdentity ? at::Tensor() : rows.edge_ids.to(dtype);
  auto core =
      std::make_shared<Core>(Shape{num_rows, num_others, num_edges, rows.indptr.device(), dtype});
  if (order == detail::EntryOrder::kOther) {
    core->give(detail::expand_rows(rows));  // the rows are sorted again on first use
  } else {
    core->give(std::move(rows));
  }
  return core;
}

}  // namespace

/// A direction of a structure. Reversed handles share the core, including arrays built later.
struct Topology::State {
  std::shared_ptr<Core> core;
  bool reversed = false;
  at::Tensor parent_in_degrees = {}, parent_out_degrees = {};  // both, or neither
  bool separate_destinations = false;
};

Topology::Topology(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Topology::Topology()
    : Topology(from_coo(at::empty({0}, at::kInt), at::empty({0}, at::kInt), 0, 0)) {}

Topology Topology::from_coo(const at::Tensor& src, const at::Tensor& dst, std::int64_t num_src,
                            std::int64_t num_dst, IdWidth width) {
  return Topology(std::make_shared<State>(
      State{core_from_edges(src, dst, num_src, num_dst, width), /*reversed=*/false}));
}

Topology Topology::from_csr(const at::Tensor& indptr, const at::Tensor& indices,
                            std::int64_t num_dst, const at::Tensor& edge_ids, IdWidth width) {
  return Topology(std::make_shared<State>(State{
      core_from_rows("from_csr", indptr, indices, num_dst, edge_ids, width), /*reversed=*/false}));
}

Topology Topology::from_csc(const at::Tensor& indptr, const at::Tensor& indices,
                            std::int64_t num_src, const at::Tensor& edge_ids, IdWidth width) {
  return Topology(std::make_shared<State>(State{
      core_from_rows("from_csc", indptr, indices, num_src, edge_ids, width), /*reversed=*/true}));
}

std::int64_t Topology::num_src() const {
  return state_->reversed ? state_->core->shape().num_dst : state_->core->shape().num_src;
}

std::int64_t Topology::num_dst() const {
  return state_->reversed ? state_->core->shape().num_src : state_->core->shape().num_dst;
}

std::int64_t Topology::num_edges() const {
  return state_->core->shape().num_edges;
}

at::Device Topology::device() const {
  return state_->core->shape().device;
}

at::ScalarType Topology::id_dtype() const {
  return state_->core->shape().id_dtype;
}

const at::Tensor& Topology::src() const {
  const detail::EdgeList& edges = state_->core->coo();
  return state_->reversed ? edges.dst : edges.src;
}

const at::Tensor& Topology::dst() const {
  const detail::EdgeList& edges = state_->core->coo();
  return state_->reversed ? edges.src : edges.dst;
}

const Adjacency& Topology::csr() const {
  return state_->reversed ? state_->core->csc() : state_->core->csr();
}

const Adjacency& Topology::csc() const {
  return state_->reversed ? state_->core->csr() : state_->core->csc();
}

const at::Tensor& Topology::csr_entries() const {
  return state_->reversed ? state_->core->csc_entries() : state_->core->csr_entries();
}

const at::Tensor& Topology::csc_entries() const {
  return state_->reversed ? state_->core->csr_entries() : state_->core->csc_entries();
}

const at::Tensor& Topology::csr_entries_by_csc() const {
  return state_->reversed ? state_->core->csc_entries_by_csr() : state_->core->csr_entries_by_csc();
}

at::Tensor Topology::in_degrees() const {
  return state_->reversed ? state_->core->out_degrees() : state_->core->in_degrees();
}

at::Tensor Topology::out_degrees() const {
  return state_->reversed ? state_->core->in_degrees() : state_->core->out_degrees();
}

at::Tensor Topology::in_degree_factors(DegreePower power, at::ScalarType dtype) const {
  Core& core = *state_->core;
  return state_->reversed ? core.out_factors(power, dtype) : core.in_factors(power, dtype);
}

at::Tensor Topology::out_degree_factors(DegreePower power, at::ScalarType dtype) const {
  Core& core = *state_->core;
  return state_->reversed ? core.in_factors(power, dtype) : core.out_factors(power, dtype);
}

bool Topology::has_zero_in_degree() const {
  return state_->reversed ? state_->core->has_zero_out_degree()
                          : state_->core->has_zero_in_degree();
}

Topology Topology::with_parent_degrees(at::Tensor in_degrees, at::Tensor out_degrees) const {
  detail::check_parent_degrees("in_degrees", in_degrees, num_dst(), device());
  detail::check_parent_degrees("out_degrees", out_degrees, num_src(), device());
  State remembering = *state_;
  remembering.parent_in_degrees = std::move(in_degrees);
  remembering.parent_out_degrees = std::move(out_degrees);
  return Topology(std::make_shared<State>(std::move(remembering)));
}

const at::Tensor* Topology::parent_in_degrees() const {
  return state_->parent_in_degrees.defined() ? &state_->parent_in_degrees : nullptr;
}

const at::Tensor* Topology::parent_out_degrees() const {
  return state_->parent_out_degrees.defined() ? &state_->parent_out_degrees : nullptr;
}

Topology Topology::with_separate_destinations() const {
  State separate = *state_;
  separate.separate_destinations = true;
  return Topology(std::make_shared<State>(std::move(separate)));
}

bool Topology::has_separate_destinations() const {
  return state_->separate_destinations;
}

Topology Topology::reverse() const {
  State other_way = *state_;
  other_way.reversed = !state_->reversed;
  std::swap(other_way.parent_in_degrees, other_way.parent_out_degrees);
  return Topology(std::make_shared<State>(std::move(other_way)));
}

Topology Topology::to(at::Device device) const {
  const at::Device target = detail::resolve_device("Topology::to", device);
  const std::shared_ptr<Core>& core = state_->core;
  Shape shape = core->shape();
  if (target == shape.device) return *this;
  std::shared_ptr<Core> target_core = core->origin();
  if (target_core == nullptr) target_core = shape.device.is_cpu() ? core : core->on_host();
  if (!target.is_cpu()) {
    shape.device = target;
    target_core = std::make_shared<Core>(shape, std::move(target_core));
  }
  return Topology(std::make_shared<State>(
      State{std::move(target_core), state_->reversed, moved(state_->parent_in_degrees, target),
            moved(state_->parent_out_degrees, target), state_->separate_destinations}));
}

std::int64_t Topology::memory_bytes() const {
  return state_->core->memory_bytes();
}

Topology detail::topology_from_rows(Adjacency csc, std::int64_t num_src, std::int64_t num_dst) {
  auto core = std::make_shared<Core>(Shape{num_dst, num_src, csc.indices.numel(),
                                           csc.indices.device(), csc.indices.scalar_type()});
  core->give(std::move(csc));
  return Topology(
      std::make_shared<Topology::State>(Topology::State{std::move(core), /*reversed=*/true}));
}

}  // namespace mezzo
