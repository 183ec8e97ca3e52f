// Operators on segments of rows. segment_reduce and segment_softmax are message passing from rows
// as sources to segments as destinations. The products run the dense products of `linear` segment
// by segment.
#include <limits>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"
#include "mezzo/graph/argument_checks.h"
#include "mezzo/graph/topology_build.h"
#include "mezzo/ops/op.h"
#include "mezzo/ops/ops.h"

namespace mezzo::detail {
namespace {

/// Throws InvalidArgument unless `ids` is an int64 vector.
void check_int64_vector(const char* what, const char* name, const at::Tensor& ids) {
  MEZZO_CHECK(ids.defined() && ids.layout() == at::kStrided && ids.scalar_type() == at::kLong &&
                  ids.dim() == 1,
              "{}: expected {} to be an int64 vector, got {}", what, name, describe(ids));
}

/// Throws InvalidArgument unless `ids` is an int64 vector on the device of the rows.
void check_ids(const char* what, const char* name, const at::Tensor& ids, const at::Tensor& rows) {
  check_int64_vector(what, name, ids);
  MEZZO_CHECK(ids.device() == rows.device(), "{}: expected {} on {}, as the rows, got {}", what,
              name, rows.device().str(), ids.device().str());
}

/// The first row of each segment, then the number of rows: int64 [S + 1] on the device of the
/// lengths, int64 [S]. Throws InvalidArgument unless their sum is the number of rows.
at::Tensor segment_bounds(const char* what, const at::Tensor& lengths, std::int64_t num_rows) {
  const std::int64_t num_segments = lengths.size(0);
  check_range(what, "lengths", lengths.contiguous(), num_rows + 1);
  at::Tensor bounds = at::zeros({num_segments + 1}, lengths.options());
  at::Tensor ends = bounds.narrow(0, 1, num_segments);
  at::cumsum_out(ends, lengths, 0);
  const auto total = bounds[num_segments].item<std::int64_t>();
  MEZZO_CHECK(total == num_rows, "{}: expected lengths that add up to the {} rows, got {}", what,
              num_rows, total);
  return bounds;
}

/// The graph with an edge from each row to its segment. `what` starts the errors.
at::Tensor segments_as_graph(c10::string_view what, const at::Tensor& lengths,
                             std::int64_t num_rows) {
  const at::Tensor bounds = segment_bounds(std::string(what).c_str(), lengths, num_rows);
  const bool fits_int32 = num_rows <= std::numeric_limits<std::int32_t>::max();
  return as_tensor(hold(Topology::from_csc(
      bounds, at::arange(num_rows, bounds.options().dtype(fits_int32 ? at::kInt : at::kLong)),
      num_rows)));
}

at::Tensor meta_of_segments(c10::string_view /*what*/, const at::Tensor& lengths,
                            c10::SymInt num_rows) {  // NOLINT: libtorch's convention
  return meta_of_topology(num_rows, lengths.sym_size(0), num_rows);
}

/// The same, through the dispatcher, because it reads the lengths.
TopologyArgument segments_of(const char* what, const at::Tensor& lengths, const at::Tensor& x) {
  static const auto segments = handle<at::Tensor(c10::string_view, const at::Tensor&, c10::SymInt)>(
      "mezzo_traced::segments");
  MEZZO_CHECK(x.defined() && x.layout() == at::kStrided && x.dim() >= 1,
              "{}: expected strided x [N, ...], got {}{}", what, describe(x), dense_hint(x));
  dtype_of(fmt::format("{}: dtype of x", what).c_str(), x.scalar_type());
  check_ids(what, "lengths", lengths, x);
  return segments.call(what, lengths, x.sym_size(0));
}

/// The rows of each factor: factor i multiplies the rows order[bounds[i]], ..., order[bounds[i + 1]
/// - 1]. An undefined order means the identity. The order is on the device of the rows.
struct Grouping {
  at::Tensor bounds, order;

  std::int64_t num_groups() const { return bounds.numel() - 1; }

  /// Runs body(group, first, count) for every group with rows.
  template <class Body>
  void for_each_group(const Body& body) const {
    const at::Tensor host = bounds.cpu();
    const auto* first = host.const_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < num_groups(); ++i) {
      if (first[i] < first[i + 1]) body(i, first[i], first[i + 1] - first[i]);
    }
  }

  at::Tensor rows(const at::Tensor& of, std::int64_t first, std::int64_t count) const {
    return order.defined() ? of.index_select(0, order.narrow(0, first, count))
                           : of.narrow(0, first, count);
  }

  void put(const at::Tensor& part, const at::Tensor& into, std::int64_t first,
           std::int64_t count) const {
    if (order.defined()) {
      into.index_copy_(0, order.narrow(0, first, count), part);
    } else {
      into.narrow(0, first, count).copy_(part);
    }
  }
};

/// Whether at::mm_out, which writes to given memory, may replace the product of `linear`.
bool uses_mm_out(const at::Tensor& t) {
  return t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble;
}

/// The rows of x times their factors (or these transposed).
at::Tensor grouped_product(const at::Tensor& x, const at::Tensor& factors, const Grouping& grouping,
                           bool transposed) {
  at::Tensor out = at::empty({x.size(0), factors.size(transposed ? 1 : 2)}, x.options());
  grouping.for_each_group([&](std::int64_t group, std::int64_t first, std::int64_t count) {
    const at::Tensor rows = grouping.rows(x, first, count), factor = factors.select(0, group);
    if (uses_mm_out(x) && !grouping.order.defined()) {
      at::Tensor slice = out.narrow(0, first, count);
      at::mm_out(slice, rows, transposed ? factor.t() : factor);
    } else {
      grouping.put(dense_product(rows, factor, std::nullopt, transposed), out, first, count);
    }
  });
  return out;
}

/// The gradients of the factors: x^T grad over the rows of each; 0 for a factor without rows.
at::Tensor factor_gradients(const at::Tensor& x, const at::Tensor& grad, const Grouping& grouping) {
  at::Tensor out = at::zeros({grouping.num_groups(), x.size(1), grad.size(1)}, x.options());
  grouping.for_each_group([&](std::int64_t group, std::int64_t first, std::int64_t count) {
    const at::Tensor a = grouping.rows(x, first, count), b = grouping.rows(grad, first, count);
    at::Tensor slice = out.select(0, group);
    if (uses_mm_out(x)) {
      at::mm_out(slice, a.t(), b);
    } else {
      slice.copy_(transposed_product(a, b));
    }
  });
  return out;
}

void check_factors(const char* what, const at::Tensor& a, const at::Tensor& b) {
  const bool strided = a.layout() == at::kStrided && b.layout() == at::kStrided;
  MEZZO_CHECK(strided && a.dim() == 2 && b.dim() == 3 && a.size(1) == b.size(1),
              "{}: expected strided a [N, D1] and b [R, D1, D2], got a {} and b {}", what,
              describe(a), describe(b));
  dtype_of(fmt::format("{}: dtype of a", what).c_str(), a.scalar_type());
  MEZZO_CHECK(a.scalar_type() == b.scalar_type() && a.device() == b.device(),
              "{}: expected a and b of one dtype on one device, got {} on {} and {} on {}", what,
              c10::toString(a.scalar_type()), a.device().str(), c10::toString(b.scalar_type()),
              b.device().str());
}

/// segment_mm: each segment has a factor.
struct BySegment {
  static constexpr auto name = "segment_mm", ids_name = "lengths",
                        gradients_name = "_segment_mm_grad";

  static void check(const at::Tensor& a, const at::Tensor& b, const at::Tensor& lengths) {
    check_factors(name, a, b);
    check_int64_vector(name, ids_name, lengths);
    MEZZO_CHECK(lengths.is_cpu() || lengths.device() == a.device(),
                "segment_mm: expected lengths on {}, as the rows, or on the CPU, got {}",
                a.device().str(), lengths.device().str());
    MEZZO_CHECK(lengths.size(0) == b.size(0),
                "segment_mm: expected lengths [{}], one a matrix of b, got [{}]", b.size(0),
                lengths.size(0));
  }

  static Grouping groups(const at::Tensor& lengths, std::int64_t num_rows,
                         std::int64_t /*num_factors*/) {
    return {segment_bounds(name, lengths.cpu(), num_rows), {}};
  }
};

/// gather_mm: each row names its factor.
struct ById {
  static constexpr auto name = "gather_mm", ids_name = "idx", gradients_name = "_gather_mm_grad";

  static void check(const at::Tensor& a, const at::Tensor& b, const at::Tensor& idx) {
    check_factors(name, a, b);
    check_ids(name, ids_name, idx, a);
    MEZZO_CHECK(idx.size(0) == a.size(0), "gather_mm: expected idx [{}], one a row of a, got [{}]",
                a.size(0), idx.size(0));
  }

  static Grouping groups(const at::Tensor& idx, std::int64_t /*num_rows*/,
                         std::int64_t num_factors) {
    const at::Tensor ids = idx.contiguous();
    check_range(name, ids_name, ids, num_factors);
    const Adjacency groups = sort_edges(ids, ids, num_factors);
    return {groups.indptr, groups.edge_ids};
  }
};

/// The gradient of a is computed from b, that of b from a. It is undefined if that tensor is
/// absent.
template <class By>
struct GroupedGradients {
  OptionalTensor a, b;
  at::Tensor ids, grad;
  std::int64_t num_factors = 0;

  static constexpr auto name = By::gradients_name;
  static constexpr auto fields() {
    using A = GroupedGradients;
    return std::tuple(Field{"a", &A::a}, Field{"b", &A::b}, Field{By::ids_name, &A::ids},
                      Field{"grad", &A::grad}, Field{"num_factors", &A::num_factors});
  }
  using Result = std::tuple<at::Tensor, at::Tensor>;

  template <class Device>
  Result run() const {
    const Grouping grouping = By::groups(ids, grad.size(0), num_factors);
    return {b ? grouped_product(grad, *b, grouping, /*transposed=*/true) : at::Tensor(),
            a ? factor_gradients(*a, grad, grouping) : at::Tensor()};
  }
  Result meta() const {
    return {b ? shape_of(grad, 1, b->sym_size(1)) : at::Tensor(),
            a ? meta_tensor({num_factors, a->sym_size(1), grad.sym_size(1)}, grad.scalar_type())
              : at::Tensor()};
  }
};

/// The rows of a times the factors b of their groups.
template <class By>
struct GroupedProduct {
  at::Tensor a, b, ids;

  static constexpr auto name = By::name;
  static constexpr auto fields() {
    using A = GroupedProduct;
    return std::tuple(Field{"a", &A::a}, Field{"b", &A::b}, Field{By::ids_name, &A::ids});
  }
  using Result = at::Tensor;

  template <class Device>
  Result run() const {
    By::check(a, b, ids);
    return grouped_product(a, b, By::groups(ids, a.size(0), b.size(0)), /*transposed=*/false);
  }
  Result meta() const { return shape_of(a, 1, b.sym_size(2)); }

  void lower(at::DeviceType device) {
    a = lowered(a, device);
    b = lowered(b, device);
  }

  static at::Tensor forward(Saved<GroupedProduct>& saved) {
    auto& [a, b, ids] = saved.op;
    const at::Tensor out = dispatch(saved.op);
    if (!saved.needs_grad.contains("b")) a.reset();
    b = saved.needs_grad.contains("a") ? b : shape_of(b);
    ids = ids.clone();  // the caller may change them before the backward
    return out;
  }

  static GroupedProduct backward(const Saved<GroupedProduct>& saved, const at::Tensor& grad) {
    const auto& [a, b, ids] = saved.op;
    GroupedGradients<By> op{{}, {}, ids, grad, b.sym_size(0).guard_int(__FILE__, __LINE__)};
    if (a.defined()) op.a = a;
    if (!b.is_meta()) op.b = b;
    GroupedProduct gradients;
    std::tie(gradients.a, gradients.b) = dispatch(op);
    return gradients;
  }
};

const Registration<GroupedProduct<BySegment>, GroupedProduct<ById>, GroupedGradients<BySegment>,
                   GroupedGradients<ById>>
    kGroupedProducts;

at::Tensor segment_reduce_by_name(c10::string_view reduce, const at::Tensor& lengths,
                                  const at::Tensor& x) {
  return segment_reduce(parse(ReduceOps{}, "segment_reduce: reduce", reduce), lengths, x);
}

}  // namespace

// Composed of gspmm and edge_softmax, which supply gradients and autocast.
TORCH_LIBRARY_FRAGMENT(mezzo, m) {
  m.def("segment_reduce(str reduce, Tensor lengths, Tensor x) -> Tensor", &segment_reduce_by_name);
  m.def("segment_softmax(Tensor lengths, Tensor x) -> Tensor", &segment_softmax);
}
TORCH_LIBRARY_FRAGMENT(mezzo_traced, m) {
  m.def("segments(str operation, Tensor lengths, SymInt num_rows) -> Tensor",
        torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &segments_as_graph));
  m.impl("segments", torch::dispatch(c10::DispatchKey::Meta, &meta_of_segments));
}

}  // namespace mezzo::detail

namespace mezzo {

at::Tensor segment_reduce(ReduceOp reduce, const at::Tensor& lengths, const at::Tensor& x) {
  return detail::copy_reduce(detail::segments_of("segment_reduce", lengths, x), reduce, x);
}

at::Tensor segment_softmax(const at::Tensor& lengths, const at::Tensor& x) {
  return detail::softmax_by_dst(detail::segments_of("segment_softmax", lengths, x), x);
}

at::Tensor segment_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& lengths) {
  detail::check_defined("segment_mm", "a", a);
  detail::check_defined("segment_mm", "b", b);
  detail::check_defined("segment_mm", "lengths", lengths);
  return detail::dispatch(detail::GroupedProduct<detail::BySegment>{a, b, lengths});
}

at::Tensor gather_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& idx) {
  detail::check_defined("gather_mm", "a", a);
  detail::check_defined("gather_mm", "b", b);
  detail::check_defined("gather_mm", "idx", idx);
  return detail::dispatch(detail::GroupedProduct<detail::ById>{a, b, idx});
}

}  // namespace mezzo
