#include "bench/gpu_kernels/cases.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include <dlfcn.h>

#include "bench/gpu_kernels/numbers.h"

namespace mezzo::bench::gpu {
namespace {

using namespace kernels;

constexpr std::int64_t kIdBytes = 4, kFloatBytes = 4;
constexpr double kSlope = 0.2;
/// Seeds of the operands.
enum : std::uint64_t { kX = 2, kY, kWeight, kSentScore, kReceivedScore, kGrad, kAttn };

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Calls f(entry, node at the other end) for the entries of a row.
template <class F>
void for_entries(const Rows& rows, std::int64_t row, const F& f) {
  for (std::int64_t e = rows.indptr[at(row)]; e < rows.indptr[at(row + 1)]; ++e) {
    f(e, rows.ids[at(e)]);
  }
}

std::int64_t num_entries(const Rows& rows, std::int64_t row) {
  return rows.indptr[at(row + 1)] - rows.indptr[at(row)];
}

/// The numbers of `row` in an array with `length` numbers a row.
Check row_check(const DeviceArray& array, DType dtype, std::int64_t length,
                std::function<ExpectedRow(std::int64_t)> expected) {
  return {
      .result = [&array, dtype, length](
                    std::int64_t row) { return read_numbers(array, dtype, row * length, length); },
      .expected = std::move(expected),
      .stored = dtype,
      .before = {}};
}

/// The numbers of the entries of `row`, `length` each.
Check entry_check(const DeviceArray& array, DType dtype, const Rows& rows, std::int64_t length,
                  std::function<ExpectedRow(std::int64_t)> expected) {
  return {.result =
              [&array, &rows, dtype, length](std::int64_t row) {
                return read_numbers(array, dtype, rows.indptr[at(row)] * length,
                                    num_entries(rows, row) * length);
              },
          .expected = std::move(expected),
          .stored = dtype,
          .before = {}};
}

/// Operands and results on the device.
struct Arrays {
  DeviceArray x, y, weight, sent, received, grad, attn, out, more, top, sum, state;
};

/// Bytes of gathering a row of `width` elements and `numbers` floats for each edge, and of reading
/// or writing `rows` rows of each node.
std::int64_t gathered_bytes(const DeviceGraph& graph, DType dtype, std::int64_t width,
                            std::int64_t numbers, std::int64_t rows) {
  const std::int64_t row = width * size_of(dtype);
  return graph.host.num_edges * (row + kIdBytes + numbers * kFloatBytes) +
         graph.host.num_nodes * (rows * row + 8);
}

// ---- sums

enum class Sum { kPlain, kWeighted, kMax };

/// Elements from one gathered row to the next: operators pad such rows to multiples of 16 bytes.
std::int64_t padded_width(DType dtype, std::int64_t width) {
  const std::int64_t pack = 16 / size_of(dtype);
  return (width + pack - 1) / pack * pack;
}

Numbers expected_sum(const Rows& rows, std::int64_t row, std::int64_t width, std::int64_t stride,
                     Sum kind) {
  Numbers sum(at(width), kind == Sum::kMax && num_entries(rows, row) > 0 ? -HUGE_VAL : 0);
  for_entries(rows, row, [&](std::int64_t e, std::int64_t node) {
    const double weight = kind == Sum::kWeighted ? number(kWeight, e) : 1;
    for (std::int64_t f = 0; f < width; ++f) {
      const double x = weight * number(kX, node * stride + f);
      double& to = sum[at(f)];
      to = kind == Sum::kMax ? std::max(to, x) : to + x;
    }
  });
  return sum;
}

Case sum_case(const DeviceGraph& graph, DType dtype, std::int64_t width, Sum kind) {
  const std::int64_t nodes = graph.host.num_nodes, stride = padded_width(dtype, width);
  const auto arrays = std::make_shared<Arrays>();
  arrays->x = random_array(dtype, kX, nodes * stride);
  arrays->out = DeviceArray(nodes * width * size_of(dtype));
  SpmmArgs args;
  args.entries = graph.csc();
  args.row_end = nodes;
  args.lhs = {.data = arrays->x.data(), .access = Access::kFirst, .length = stride};
  args.layout = {.inner = width};
  args.dtype = dtype;
  args.out = arrays->out.data();
  args.out_length = width;
  if (kind == Sum::kWeighted) {
    arrays->weight = random_array(dtype, kWeight, graph.host.num_edges);
    args.rhs = {.data = arrays->weight.data(), .access = Access::kSecond, .length = 1};
    args.layout.rhs_step = 0;
    args.op = BinaryOp::kMul;
  }
  if (kind == Sum::kMax) {
    arrays->more = DeviceArray(nodes * width * kIdBytes);
    args.reduce = ReduceOp::kMax;
    args.arg = arrays->more.data();
  }
  const Rows& rows = graph.host.csc;
  return {
      .work = kind == Sum::kPlain      ? "copy_u sum"
              : kind == Sum::kWeighted ? "u_mul_e sum"
                                       : "copy_u max",
      .width = width,
      .dtype = dtype,
      .moved_bytes = gathered_bytes(graph, dtype, width, kind == Sum::kWeighted ? 1 : 0, 1),
      .checks = {row_check(arrays->out, dtype, width,
                           [&rows, width, stride, kind](std::int64_t row) {
                             return expected_sum(rows, row, width, stride, kind);
                           })},
      .results = {&arrays->out},
      .run = [args, edges = graph.host.num_edges](Library& library) { library.run(args, edges); },
      .operands = arrays};
}

// ---- products of rows

double row_product(std::uint64_t a_seed, std::int64_t a, std::uint64_t b_seed, std::int64_t b,
                   std::int64_t width) {
  double sum = 0;
  for (std::int64_t f = 0; f < width; ++f) {
    sum += double{number(a_seed, a * width + f)} * double{number(b_seed, b * width + f)};
  }
  return sum;
}

/// dots: only <own, other> of each entry; else also the gradient of the own rows.
Case product_case(const DeviceGraph& graph, DType dtype, std::int64_t width, bool dots) {
  const std::int64_t nodes = graph.host.num_nodes, edges = graph.host.num_edges;
  const auto arrays = std::make_shared<Arrays>();
  arrays->x = random_array(dtype, kX, nodes * width);
  arrays->y = random_array(dtype, kY, nodes * width);
  arrays->more = DeviceArray(edges * size_of(dtype));
  WeightedGradArgs args;
  args.entries = graph.csc();
  args.row_end = nodes;
  args.dtype = dtype;
  args.features = width;
  args.own = arrays->y.data();
  args.other = arrays->x.data();
  args.weight_grad = arrays->more.data();
  const Rows& rows = graph.host.csc;
  const auto products = [&rows, width](std::int64_t row) {
    Numbers all;
    for_entries(rows, row, [&](std::int64_t, std::int64_t node) {
      all.push_back(row_product(kY, row, kX, node, width));
    });
    return all;
  };
  std::vector<Check> checks = {entry_check(arrays->more, dtype, rows, 1, products)};
  std::vector<DeviceArray*> results = {&arrays->more};
  if (!dots) {
    arrays->weight = random_array(dtype, kWeight, edges);
    arrays->out = DeviceArray(nodes * width * size_of(dtype));
    args.weight = {.data = arrays->weight.data()};
    args.own_grad = arrays->out.data();
    checks.push_back(row_check(arrays->out, dtype, width, [&rows, width](std::int64_t row) {
      return expected_sum(rows, row, width, width, Sum::kWeighted);
    }));
    results.push_back(&arrays->out);
  }
  return {.work = dots ? "u_dot_v" : "gradients of u_mul_e sum",
          .width = width,
          .dtype = dtype,
          .moved_bytes = gathered_bytes(graph, dtype, width, dots ? 1 : 2, dots ? 1 : 2),
          .checks = checks,
          .results = results,
          .run = [args, edges](Library& library) { library.run(args, edges); },
          .operands = arrays};
}

// ---- softmax

Numbers softmax(Numbers logits) {
  double top = -HUGE_VAL, sum = 0;
  for (const double x : logits) top = std::max(top, x);
  for (double& x : logits) sum += x = std::exp(x - top);
  for (double& x : logits) x /= sum;
  return logits;
}

Case softmax_case(const DeviceGraph& graph, DType dtype, std::int64_t heads) {
  const std::int64_t edges = graph.host.num_edges;
  const auto arrays = std::make_shared<Arrays>();
  arrays->x = random_array(dtype, kX, edges * heads);
  arrays->out = DeviceArray(edges * heads * size_of(dtype));
  SoftmaxArgs args;
  args.entries = graph.csc();
  args.row_end = graph.host.num_nodes;
  args.dtype = dtype;
  args.length = heads;
  args.logits = arrays->x.data();
  args.out = arrays->out.data();
  const Rows& rows = graph.host.csc;
  const auto expected = [&rows, heads](std::int64_t row) {
    Numbers all(at(num_entries(rows, row) * heads));
    for (std::int64_t h = 0; h < heads; ++h) {
      Numbers logits;
      for_entries(rows, row, [&](std::int64_t e, std::int64_t) {
        logits.push_back(number(kX, e * heads + h));
      });
      logits = softmax(logits);
      for (std::size_t i = 0; i < logits.size(); ++i) all[i * at(heads) + at(h)] = logits[i];
    }
    return all;
  };
  return {.work = "edge softmax",
          .width = heads,
          .dtype = dtype,
          .moved_bytes = edges * 2 * heads * size_of(dtype) + graph.host.num_nodes * 8,
          .checks = {entry_check(arrays->out, dtype, rows, heads, expected)},
          .results = {&arrays->out},
          .run = [args, edges](Library& library) { library.run(args, edges); },
          .operands = arrays};
}

// ---- attention

double leaky_relu(double x) {
  return x > 0 ? x : kSlope * x;
}

/// One head of `width` features below 64, else two.
std::int64_t heads_of(std::int64_t width) {
  return width < 64 ? 1 : 2;
}

AttentionArgs attention_args(const DeviceGraph& graph, DType dtype, std::int64_t width,
                             Arrays& arrays) {
  const std::int64_t nodes = graph.host.num_nodes, heads = heads_of(width), row = heads * width;
  arrays.x = random_array(dtype, kX, nodes * row);
  arrays.sent = random_array(DType::kFloat32, kSentScore, nodes * heads);
  arrays.received = random_array(DType::kFloat32, kReceivedScore, nodes * heads);
  arrays.out = DeviceArray(nodes * row * size_of(dtype));
  arrays.top = DeviceArray(nodes * heads * kFloatBytes);
  arrays.sum = DeviceArray(nodes * heads * kFloatBytes);
  AttentionArgs args;
  args.entries = graph.csc();
  args.row_end = nodes;
  args.dtype = dtype;
  args.heads = heads;
  args.features = width;
  args.scores.src = {.data = arrays.sent.data(), .is_accum = true, .length = heads};
  args.scores.dst = {.data = arrays.received.data(), .is_accum = true, .length = heads};
  args.scores.negative_slope = kSlope;
  args.z = arrays.x.data();
  args.out = arrays.out.data();
  args.top = arrays.top.data();
  args.sum = arrays.sum.data();
  return args;
}

Numbers expected_attention(const Rows& rows, std::int64_t row, std::int64_t heads,
                           std::int64_t width) {
  Numbers out(at(heads * width));
  for (std::int64_t h = 0; h < heads; ++h) {
    Numbers shares;
    for_entries(rows, row, [&](std::int64_t, std::int64_t node) {
      shares.push_back(leaky_relu(double{number(kSentScore, node * heads + h)} +
                                  double{number(kReceivedScore, row * heads + h)}));
    });
    shares = softmax(shares);
    for_entries(rows, row, [&](std::int64_t e, std::int64_t node) {
      const double share = shares[at(e - rows.indptr[at(row)])];
      for (std::int64_t f = 0; f < width; ++f) {
        out[at(h * width + f)] += share * number(kX, (node * heads + h) * width + f);
      }
    });
  }
  return out;
}

Case attention_case(const DeviceGraph& graph, DType dtype, std::int64_t width) {
  const auto arrays = std::make_shared<Arrays>();
  const AttentionArgs args = attention_args(graph, dtype, width, *arrays);
  const Rows& rows = graph.host.csc;
  const std::int64_t heads = args.heads;
  return {
      .work = "attention, " + std::to_string(heads) + " x F",
      .width = width,
      .dtype = dtype,
      .moved_bytes = gathered_bytes(graph, dtype, heads * width, heads, 1),
      .checks = {row_check(arrays->out, dtype, heads * width,
                           [&rows, heads, width](std::int64_t row) {
                             return expected_attention(rows, row, heads, width);
                           })},
      .results = {&arrays->out},
      .run = [args, edges = graph.host.num_edges](Library& library) { library.run(args, edges); },
      .operands = arrays};
}

/// An edge's attention, recomputed from the destinations' states as the kernel does.
struct EdgeAttention {
  double share, slope, mean;
};

EdgeAttention attention_of(const Numbers& states, std::int64_t own, std::int64_t node,
                           std::int64_t head, std::int64_t heads) {
  const double x = double{number(kSentScore, own * heads + head)} +
                   double{number(kReceivedScore, node * heads + head)};
  const auto state = [&](std::int64_t i) {
    return states[at((node * kStateNumbers + i) * heads + head)];
  };
  return {std::exp(leaky_relu(x) - state(1)) * state(2), x > 0 ? 1 : kSlope, state(3)};
}

Numbers expected_z_grad(const Rows& rows, std::int64_t row, std::int64_t heads, std::int64_t width,
                        const Numbers& states) {
  Numbers grad(at(heads * width));
  for_entries(rows, row, [&](std::int64_t, std::int64_t node) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const double share = attention_of(states, row, node, h, heads).share;
      for (std::int64_t f = h * width; f < (h + 1) * width; ++f) {
        grad[at(f)] += share * number(kGrad, node * heads * width + f);
      }
    }
  });
  return grad;
}

ExpectedRow expected_score_grad(const Rows& rows, std::int64_t row, std::int64_t heads,
                                std::int64_t width, const Numbers& states) {
  Numbers grad(at(heads));
  double squares = 0;
  for_entries(rows, row, [&](std::int64_t, std::int64_t node) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const EdgeAttention edge = attention_of(states, row, node, h, heads);
      const double product = row_product(kX, row * heads + h, kGrad, node * heads + h, width);
      grad[at(h)] += edge.share * (product - edge.mean) * edge.slope;
      squares += std::pow(edge.share * (std::abs(product) + std::abs(edge.mean)), 2);
    }
  });
  return {grad, std::sqrt(squares)};
}

/// Of a destination: received score, row maximum, 1 / sum of exponentials, mean gradient.
Numbers expected_state(const AttentionStateArgs& args, const Arrays& arrays, std::int64_t row) {
  const std::int64_t heads = args.heads, width = args.features;
  const Numbers out = read_numbers(arrays.out, args.dtype, row * heads * width, heads * width);
  const Numbers top = read_numbers(arrays.top, DType::kFloat32, row * heads, heads);
  const Numbers sum = read_numbers(arrays.sum, DType::kFloat32, row * heads, heads);
  Numbers state(at(kStateNumbers * heads));
  for (std::int64_t h = 0; h < heads; ++h) {
    state[at(h)] = number(kReceivedScore, row * heads + h);
    state[at(heads + h)] = top[at(h)];
    state[at(2 * heads + h)] = 1 / sum[at(h)];
    for (std::int64_t f = 0; f < width; ++f) {
      state[at(3 * heads + h)] +=
          out[at(h * width + f)] * number(kGrad, (row * heads + h) * width + f);
    }
  }
  return state;
}

Case attention_grad_case(const DeviceGraph& graph, DType dtype, std::int64_t width) {
  const std::int64_t nodes = graph.host.num_nodes, edges = graph.host.num_edges;
  const auto arrays = std::make_shared<Arrays>();
  const AttentionArgs forward = attention_args(graph, dtype, width, *arrays);
  const std::int64_t heads = forward.heads, row = heads * width;
  arrays->grad = random_array(dtype, kGrad, nodes * row);
  arrays->state = DeviceArray(nodes * kStateNumbers * heads * kFloatBytes);
  arrays->y = DeviceArray(nodes * row * size_of(dtype));
  arrays->weight = DeviceArray(nodes * heads * kFloatBytes);
  arrays->more = DeviceArray(edges * heads * kFloatBytes);
  AttentionStateArgs state;
  state.row_end = nodes;
  state.dtype = dtype;
  state.heads = heads;
  state.features = width;
  state.score_dst = forward.scores.dst;
  state.top = forward.top;
  state.sum = forward.sum;
  state.out = forward.out;
  state.grad = arrays->grad.data();
  state.state = arrays->state.data();
  AttentionGradArgs grads;
  grads.entries = graph.csr();
  grads.row_end = nodes;
  grads.dtype = dtype;
  grads.heads = heads;
  grads.features = width;
  grads.head_end = heads;
  grads.scores = forward.scores;
  grads.z = forward.z;
  grads.grad = arrays->grad.data();
  grads.state = arrays->state.data();
  grads.z_grad = arrays->y.data();
  grads.score_grad = arrays->weight.data();
  grads.sum_grad = arrays->more.data();
  const auto states = std::make_shared<Numbers>();
  const auto read_states = [states, arrays = arrays.get(), nodes, heads] {
    *states = read_numbers(arrays->state, DType::kFloat32, 0, nodes * kStateNumbers * heads);
  };
  const Rows& rows = graph.host.csr;
  const auto z_grad = [&rows, heads, width, states](std::int64_t node) {
    return expected_z_grad(rows, node, heads, width, *states);
  };
  const auto score_grad = [&rows, heads, width, states](std::int64_t node) {
    return expected_score_grad(rows, node, heads, width, *states);
  };
  const auto packed = [state, arrays = arrays.get()](std::int64_t node) {
    return expected_state(state, *arrays, node);
  };
  std::vector<Check> checks = {
      row_check(arrays->state, DType::kFloat32, kStateNumbers * heads, packed),
      row_check(arrays->y, dtype, row, z_grad),
      row_check(arrays->weight, DType::kFloat32, heads, score_grad)};
  checks.front().before = read_states;
  return {
      .work = "gradients of attention, " + std::to_string(heads) + " x F",
      .width = width,
      .dtype = dtype,
      .moved_bytes = gathered_bytes(graph, dtype, row, 5 * heads, 4),
      .checks = checks,
      .results = {&arrays->y, &arrays->weight, &arrays->state},
      .run =
          [forward, state, grads, edges, ready = std::make_shared<bool>(false)](Library& library) {
            if (!std::exchange(*ready, true)) library.run(forward, edges);
            library.run(state, 0);
            library.run(grads, edges);
          },
      .operands = arrays};
}

Case gatv2_case(const DeviceGraph& graph, DType dtype, std::int64_t width) {
  const std::int64_t nodes = graph.host.num_nodes, edges = graph.host.num_edges;
  const std::int64_t heads = heads_of(width);
  const auto arrays = std::make_shared<Arrays>();
  arrays->x = random_array(dtype, kX, nodes * heads * width);
  arrays->y = random_array(dtype, kY, nodes * heads * width);
  arrays->attn = random_array(DType::kFloat32, kAttn, heads * width);
  arrays->out = DeviceArray(edges * heads * kFloatBytes);
  GATv2ScoresArgs args;
  args.entries = graph.csc();
  args.row_end = nodes;
  args.dtype = dtype;
  args.pairs = {.heads = heads,
                .features = width,
                .own = arrays->y.data(),
                .other = arrays->x.data(),
                .attn = arrays->attn.data(),
                .negative_slope = kSlope};
  args.scores = arrays->out.data();
  const Rows& rows = graph.host.csc;
  const auto expected = [&rows, heads, width](std::int64_t row) -> ExpectedRow {
    Numbers scores;
    for_entries(rows, row, [&](std::int64_t, std::int64_t node) {
      for (std::int64_t h = 0; h < heads; ++h) {
        double sum = 0;
        for (std::int64_t f = h * width; f < (h + 1) * width; ++f) {
          sum += number(kAttn, f) * leaky_relu(double{number(kY, row * heads * width + f)} +
                                               double{number(kX, node * heads * width + f)});
        }
        scores.push_back(sum);
      }
    });
    return {scores, 0.25 * std::sqrt(static_cast<double>(width))};
  };
  return {.work = "GATv2 scores, " + std::to_string(heads) + " x F",
          .width = width,
          .dtype = dtype,
          .moved_bytes = gathered_bytes(graph, dtype, heads * width, heads, 1),
          .checks = {entry_check(arrays->out, DType::kFloat32, rows, heads, expected)},
          .results = {&arrays->out},
          .run = [args, edges](Library& library) { library.run(args, edges); },
          .operands = arrays};
}

// ---- copies

/// The rows of the first edges' sources, one for each node.
Case gather_case(const DeviceGraph& graph, DType dtype, std::int64_t width) {
  const std::int64_t nodes = std::min(graph.host.num_nodes, graph.host.num_edges);
  const auto arrays = std::make_shared<Arrays>();
  arrays->x = random_array(dtype, kX, graph.host.num_nodes * width);
  arrays->out = DeviceArray(graph.host.num_nodes * width * size_of(dtype));
  const CudaGatherArgs args{.table = arrays->x.data(),
                            .ids = graph.csc().first,
                            .num_rows = nodes,
                            .row_bytes = width * size_of(dtype),
                            .out = arrays->out.data()};
  const auto expected = [&ids = graph.host.csc.ids, width](std::int64_t row) {
    Numbers numbers;
    for (std::int64_t f = 0; f < width; ++f) {
      numbers.push_back(number(kX, ids[at(row)] * width + f));
    }
    return numbers;
  };
  return {.work = "gather",
          .width = width,
          .dtype = dtype,
          .moved_bytes = nodes * (2 * width * size_of(dtype) + kIdBytes),
          .checks = {row_check(arrays->out, dtype, width, expected)},
          .results = {&arrays->out},
          .run = [args](Library& library) { library.run(args, 0); },
          .operands = arrays};
}

}  // namespace

DeviceGraph::DeviceGraph(HostGraph graph)
    : host(std::move(graph)),
      csc_indptr(to_device(host.csc.indptr)),
      csc_ids(to_device(host.csc.ids)),
      csr_indptr(to_device(host.csr.indptr)),
      csr_ids(to_device(host.csr.ids)) {}

kernels::Entries DeviceGraph::csc() const {
  return {static_cast<const std::int64_t*>(csc_indptr.data()), {.data = csc_ids.data()}, {}};
}

kernels::Entries DeviceGraph::csr() const {
  return {static_cast<const std::int64_t*>(csr_indptr.data()), {.data = csr_ids.data()}, {}};
}

Library::Library(std::string name, const std::string& path) : name_(std::move(name)) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* symbol = library != nullptr ? dlsym(library, "mezzo_cuda_kernels") : nullptr;
  if (symbol == nullptr) throw std::runtime_error("--library: " + std::string(dlerror()));
  kernels_ = reinterpret_cast<const kernels::CudaKernels* (*)()>(symbol)();
}

const std::vector<CaseKind>& case_kinds() {
  static const std::vector<CaseKind> kinds = {
      {"sum",
       [](const auto& graph, DType d, auto f) { return sum_case(graph, d, f, Sum::kPlain); },
       {64, 256, 602, 608, 41, 48}},
      {"weighted-sum",
       [](const auto& graph, DType d, auto f) { return sum_case(graph, d, f, Sum::kWeighted); },
       {256, 41}},
      {"max",
       [](const auto& graph, DType d, auto f) { return sum_case(graph, d, f, Sum::kMax); },
       {256}},
      {"dot",
       [](const auto& graph, DType d, auto f) { return product_case(graph, d, f, true); },
       {256, 41}},
      {"weighted-sum-grad",
       [](const auto& graph, DType d, auto f) { return product_case(graph, d, f, false); },
       {256, 41}},
      {"softmax",
       [](const auto& graph, DType d, auto heads) { return softmax_case(graph, d, heads); },
       {1, 2}},
      {"attention", attention_case, {256, 41}},
      {"attention-grad", attention_grad_case, {256, 41}},
      {"gatv2", gatv2_case, {256, 41}},
      {"gather", gather_case, {602, 256}}};
  return kinds;
}

}  // namespace mezzo::bench::gpu
