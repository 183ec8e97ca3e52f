#pragma once

#include <cstdint>
#include <vector>

#include "tests/definitions/array.h"

namespace mezzo::definition {

/// Row i of a times b[ids[i]], and the gradients of a and b. a: [N, in]; b: [groups, in, out];
/// grad: [N, out]. Of segment_mm: ids are the rows' segments.
inline Result gather_mm(const Array& a, const Array& b, const std::vector<std::int64_t>& ids,
                        const Array& grad) {
  const std::int64_t rows = a.sizes[0], in = a.sizes[1], width = b.sizes[2];
  Sums out({rows, width}), grad_a(a.sizes), grad_b(b.sizes);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(b.sizes[0]), 0);
  for (std::int64_t n = 0; n < rows; ++n) {
    const std::int64_t group = ids[static_cast<std::size_t>(n)];
    ++counts[static_cast<std::size_t>(group)];
    for (std::int64_t k = 0; k < in; ++k) {
      for (std::int64_t c = 0; c < width; ++c) {
        const std::int64_t of_a = n * in + k, of_b = (group * in + k) * width + c;
        out.add(n * width + c, a[of_a] * b[of_b]);
        grad_a.add(of_a, grad[n * width + c] * b[of_b]);
        grad_b.add(of_b, grad[n * width + c] * a[of_a]);
      }
    }
  }
  std::int64_t longest = 0;
  for (const std::int64_t count : counts) longest = std::max(longest, count);
  out.terms = static_cast<double>(in) + 2;
  grad_a.terms = static_cast<double>(width) + 2;
  grad_b.terms = static_cast<double>(longest) + 2;
  return {out, {grad_a, grad_b}};
}

}  // namespace mezzo::definition
