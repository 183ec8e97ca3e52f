#include "mezzo/ops/schema.h"

#include <array>
#include <functional>
#include <limits>
#include <set>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include "mezzo/core/error.h"

// Operators without a leading underscore are public: in C++ through ops.h, in Python as
// torch.ops.mezzo.*.

namespace mezzo::detail {
namespace {

// Ids are copy_of in and out, because Python may modify tensors in place and a Topology must not
// change.

std::tuple<at::Tensor, at::Tensor> edges_of(const Topology& t) {
  const auto copy_of = [](const at::Tensor& ids) {
    return ids.to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
  };
  return {copy_of(t.src()), copy_of(t.dst())};
}

std::string text_of(const Topology& t) {
  return fmt::format("mezzo.Topology({} sources, {} destinations, {} edges, {})", t.num_src(),
                     t.num_dst(), t.num_edges(), t.device().str());
}

using TopologyState = std::tuple<at::Tensor, at::Tensor, std::int64_t, std::int64_t>;

/// What torch.compile guards on and passes to the fake class (python/mezzo/graph.py). Not integers,
/// which it would make symbolic in the guards, but not in the fake object.
std::tuple<std::tuple<std::string, std::string>> flat_state_of(const Topology& t) {
  return {{"counts_and_device",
           fmt::format("{} {} {} {}", t.num_src(), t.num_dst(), t.num_edges(), t.device().str())}};
}

/// The deleter of a storage that owns a topology, which also identifies it.
void release_topology(void* topology) {
  delete static_cast<TopologyPtr*>(topology);
}

}  // namespace

at::Tensor as_tensor(const TopologyPtr& topology) {
  const c10::InferenceMode no_inference(false);  // a compiled graph may save it for a backward
  const Topology& t = topology->value;
  const std::array<std::int64_t, 4> sizes = {0, t.num_src(), t.num_dst(), t.num_edges()};
  constexpr std::array<std::int64_t, 4> kStrides = {};  // their products may not fit 64 bits
  return at::for_blob(nullptr, sizes)
      .strides(kStrides)
      .context(new TopologyPtr(topology), &release_topology)
      .options(at::TensorOptions(t.device()).dtype(at::kByte))
      .target_device(t.device())
      .make_tensor();
}

at::Tensor meta_of_topology(const c10::SymInt& num_src, const c10::SymInt& num_dst,
                            const c10::SymInt& num_edges) {
  const std::array<c10::SymInt, 4> sizes = {0, num_src, num_dst, num_edges}, strides = {0, 0, 0, 0};
  return at::empty_strided_symint(sizes, strides, at::TensorOptions(at::kMeta).dtype(at::kByte));
}

at::ScalarType TopologyArgument::id_dtype() const {
  for (const Target target : {Target::kSrc, Target::kDst, Target::kEdge}) {
    const c10::SymBool is_wide = rows(target).sym_gt(std::numeric_limits<std::int32_t>::max());
    if (is_wide.guard_or_false(__FILE__, __LINE__)) return at::kLong;
  }
  return at::kInt;
}

const TopologyHolder* TopologyArgument::operator->() const {
  if (object_) return object_.get();
  MEZZO_CHECK(tensor_.defined() && tensor_.has_storage() &&
                  tensor_.storage().data_ptr().get_deleter() == &release_topology,
              "expected the tensor of mezzo_traced::topology, got another one");
  return static_cast<const TopologyPtr*>(tensor_.storage().data_ptr().get_context())->get();
}

void register_topology_class() {
  static const auto registered =
      torch::class_<TopologyHolder>("mezzo", "Topology")
          .def_static("from_coo",
                      [](const at::Tensor& src, const at::Tensor& dst, std::int64_t num_src,
                         std::int64_t num_dst) {
                        return hold(Topology::from_coo(src.clone(), dst.clone(), num_src, num_dst));
                      })
          .def_static(
              "from_csr",
              [](const at::Tensor& indptr, const at::Tensor& indices, std::int64_t num_dst) {
                return hold(Topology::from_csr(indptr.clone(), indices.clone(), num_dst));
              })
          .def_static(
              "from_csc",
              [](const at::Tensor& indptr, const at::Tensor& indices, std::int64_t num_src) {
                return hold(Topology::from_csc(indptr.clone(), indices.clone(), num_src));
              })
          .def("num_src", [](const TopologyPtr& t) { return t->value.num_src(); })
          .def("num_dst", [](const TopologyPtr& t) { return t->value.num_dst(); })
          .def("num_edges", [](const TopologyPtr& t) { return t->value.num_edges(); })
          .def("edges", [](const TopologyPtr& t) { return edges_of(t->value); })
          .def("in_degrees", [](const TopologyPtr& t) { return t->value.in_degrees(); })
          .def("out_degrees", [](const TopologyPtr& t) { return t->value.out_degrees(); })
          .def("reverse", [](const TopologyPtr& t) { return hold(t->value.reverse()); })
          .def("__eq__", [](const TopologyPtr& t, const TopologyPtr& other) { return t == other; })
          .def("__obj_flatten__", [](const TopologyPtr& t) { return flat_state_of(t->value); })
          .def("__repr__", [](const TopologyPtr& t) { return text_of(t->value); })
          .def("__str__", [](const TopologyPtr& t) { return text_of(t->value); })
          .def_pickle(
              [](const TopologyPtr& t) -> TopologyState {
                return std::tuple_cat(edges_of(t->value),
                                      std::make_tuple(t->value.num_src(), t->value.num_dst()));
              },
              [](TopologyState state) {
                const auto& [src, dst, num_src, num_dst] = state;
                return hold(Topology::from_coo(src, dst, num_src, num_dst));
              });
}

template <Target target>
static at::Tensor degrees(const at::Tensor& topology) {
  const Topology& t = TopologyArgument(topology)->value;
  return target == Target::kDst ? t.in_degrees() : t.out_degrees();
}

template <Target target>
static at::Tensor meta_of_degrees(const at::Tensor& topology) {
  return at::empty_symint({TopologyArgument(topology).rows(target)},
                          at::TensorOptions(at::kMeta).dtype(at::kLong));
}

static at::Tensor reverse(const at::Tensor& topology) {
  return as_tensor(hold(TopologyArgument(topology)->value.reverse()));
}

static at::Tensor meta_of_reverse(const at::Tensor& topology) {
  const TopologyArgument t(topology);
  return meta_of_topology(t.rows(Target::kDst), t.rows(Target::kSrc), t.rows(Target::kEdge));
}

// The methods of a topology as operators of its tensor.
TORCH_LIBRARY_FRAGMENT(mezzo_traced, m) {
  register_topology_class();
  const auto add = [&](const char* name, auto* kernel, auto* meta) {
    m.def((name + std::string("(Tensor topology) -> Tensor")).c_str());
    m.impl(name, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, kernel));
    m.impl(name, torch::dispatch(c10::DispatchKey::Meta, meta));
  };
  add("in_degrees", &degrees<Target::kDst>, &meta_of_degrees<Target::kDst>);
  add("out_degrees", &degrees<Target::kSrc>, &meta_of_degrees<Target::kSrc>);
  add("reverse", &reverse, &meta_of_reverse);
  m.def("topology(__torch__.torch.classes.mezzo.Topology topology) -> Tensor",
        torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &as_tensor));
}

static std::set<std::string, std::less<>>& repeatable_operators() {
  static std::set<std::string, std::less<>> operators;
  return operators;
}

void declare_repeatable(const char* name) {
  for (const char* library : {"mezzo::", "mezzo_traced::"}) {
    repeatable_operators().insert(std::string(library) + name);
  }
}

bool is_repeatable(std::string_view name) {
  return repeatable_operators().contains(name);
}

}  // namespace mezzo::detail
