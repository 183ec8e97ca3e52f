// Dense products by every backend, compared with the definition in float64: small
// whole numbers, so that sums are exact; sizes around those of blocks; guarded memory.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "mezzo/core/random.h"
#include "mezzo/kernels/backend.h"

#include "guarded.h"

namespace mezzo::kernels {
namespace {

using test::GuardedBytes;

constexpr std::int64_t kUnused = 3;  ///< unused numbers between rows

std::int64_t bytes_of(DType dtype) {
  return dtype == DType::kFloat32 ? 4 : 2;
}

/// A matrix in guarded memory, its rows kUnused numbers apart.
struct Matrix {
  std::int64_t rows, columns, of_number;
  std::vector<float> values;
  GuardedBytes bytes;

  Matrix(const CpuBackend& backend, DType dtype, std::int64_t height, std::int64_t width,
         std::vector<float> numbers)
      : rows(height),
        columns(width),
        of_number(bytes_of(dtype)),
        values(std::move(numbers)),
        bytes(size()) {
    for (std::int64_t r = 0; r < rows; ++r) {
      backend.narrow(dtype, values.data() + r * columns,
                     bytes.data() + r * (columns + kUnused) * of_number, columns);
    }
  }
  std::size_t size() const {
    const std::int64_t numbers = rows == 0 ? 0 : (rows - 1) * (columns + kUnused) + columns;
    return static_cast<std::size_t>(numbers * of_number);
  }
  double at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * columns + column)];
  }
  DenseRows view() const { return {bytes.data(), rows, columns, columns + kUnused}; }
  /// Columns [first, first + count) of the rows [row, row + height).
  DenseRows view(std::int64_t row, std::int64_t height, std::int64_t first,
                 std::int64_t count) const {
    return {bytes.data() + (row * (columns + kUnused) + first) * of_number, height, count,
            columns + kUnused};
  }
};

/// Whole numbers in [-2, 2].
std::vector<float> small_numbers(std::int64_t count, std::uint64_t seed) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(random_bits(seed, 1, i) % 5) - 2;
  }
  return numbers;
}

Matrix small_matrix(const CpuBackend& backend, DType dtype, std::int64_t rows, std::int64_t columns,
                    std::uint64_t seed) {
  return {backend, dtype, rows, columns, small_numbers(rows * columns, seed)};
}

/// `x` rounded to the dtype.
float rounded(const CpuBackend& backend, DType dtype, double x) {
  const auto float32 = static_cast<float>(x);
  std::uint32_t bits = 0;
  float back = 0;
  backend.narrow(dtype, &float32, &bits, 1);
  backend.widen(dtype, &bits, &back, 1);
  return back;
}

/// Memory for `count` numbers, all NaN.
GuardedBytes nans(std::int64_t count) {
  return GuardedBytes(
      std::vector<float>(static_cast<std::size_t>(count), std::numeric_limits<float>::quiet_NaN()));
}

/// The panels of `matrix` or of its transpose.
GuardedBytes packed(const CpuBackend& backend, DType dtype, const Matrix& matrix,
                    bool transposed = false) {
  const std::int64_t columns = transposed ? matrix.rows : matrix.columns;
  const std::int64_t depth = transposed ? matrix.columns : matrix.rows;
  GuardedBytes panels = nans(depth * dense_padded(columns));
  // In two ranges if there are enough columns.
  const std::int64_t half = columns > kDensePadding ? kDensePadding : 0;
  for (const auto& [first, count] :
       {std::pair{std::int64_t{0}, half}, std::pair{half, columns - half}}) {
    backend.run(PackArgs{.dtype = dtype,
                         .from = transposed ? matrix.view(first, count, 0, depth)
                                            : matrix.view(0, depth, first, count),
                         .transposed = transposed,
                         .to = reinterpret_cast<float*>(panels.data()) + first * depth});
  }
  return panels;
}

/// x times factor plus bias, computed for the ranges of rows between `bounds`; in float32.
std::vector<float> product(const CpuBackend& backend, DType dtype, const Matrix& x,
                           const Matrix& factor, const std::vector<float>& bias,
                           const std::vector<std::int64_t>& bounds) {
  const GuardedBytes panels = packed(backend, dtype, factor);
  const std::int64_t columns = factor.columns;
  GuardedBytes out(static_cast<std::size_t>(x.rows * columns * bytes_of(dtype)));
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    GuardedBytes scratch = nans(rows_product_scratch(columns));
    backend.run(RowsProductArgs{.dtype = dtype,
                                .x = x.view(bounds[i], bounds[i + 1] - bounds[i], 0, x.columns),
                                .panels = reinterpret_cast<const float*>(panels.data()),
                                .bias = bias.empty() ? nullptr : bias.data(),
                                .columns = columns,
                                .out = out.data() + bounds[i] * columns * bytes_of(dtype),
                                .out_stride = columns,
                                .scratch = reinterpret_cast<float*>(scratch.data())});
  }
  std::vector<float> float32(static_cast<std::size_t>(x.rows * columns));
  backend.widen(dtype, out.data(), float32.data(), x.rows * columns);
  return float32;
}

/// a^T b, added to `start` in every element if there is one.
std::vector<float> transposed(const CpuBackend& backend, DType dtype, const Matrix& a,
                              const Matrix& b, std::optional<float> start = {}) {
  GuardedBytes sum = nans(a.columns * b.columns);
  if (start) std::fill_n(reinterpret_cast<float*>(sum.data()), a.columns * b.columns, *start);
  GuardedBytes scratch = nans(transposed_product_scratch(a.columns, b.columns));
  backend.run(TransposedProductArgs{.dtype = dtype,
                                    .a = a.view(),
                                    .b = b.view(),
                                    .sum = reinterpret_cast<float*>(sum.data()),
                                    .sum_stride = b.columns,
                                    .add = start.has_value(),
                                    .scratch = reinterpret_cast<float*>(scratch.data())});
  const auto* numbers = reinterpret_cast<const float*>(sum.data());
  return {numbers, numbers + a.columns * b.columns};
}

template <class Check>
void for_each_backend(Check check) {
  for (const BackendStatus& one : cpu_backends()) {
    if (one.backend == nullptr) continue;
    detail::for_each(DenseDTypes{}, [&]<class T>() {
      SCOPED_TRACE(std::string(one.name) + " " + std::string(T::name));
      check(*one.backend, T::kind);
    });
  }
}

struct Sizes {
  std::int64_t rows, depth, columns;
};

std::vector<Sizes> product_sizes() {
  std::vector<Sizes> all;
  for (const std::int64_t rows : {0, 1, 5, 12, 13}) {
    for (const std::int64_t depth : {0, 1, 7, 64}) {
      for (const std::int64_t columns : {1, 8, 9, 16, 17, 32, 33, 41, 64}) {
        all.push_back({rows, depth, columns});
      }
    }
  }
  // Larger than a block of rows, a slice of the depth, a tile of columns.
  for (const Sizes& one : {Sizes{240, 320, 8}, Sizes{241, 321, 20}, Sizes{500, 33, 3},
                           Sizes{13, 700, 49}, Sizes{3, 322, 513}, Sizes{14, 5, 1030}}) {
    all.push_back(one);
  }
  return all;
}

TEST(DenseRows, are_multiplied_and_rounded_once) {
  for_each_backend([](const CpuBackend& backend, DType dtype) {
    for (const auto& [rows, depth, columns] : product_sizes()) {
      SCOPED_TRACE(testing::Message() << rows << " x " << depth << " x " << columns);
      const Matrix x = small_matrix(backend, dtype, rows, depth, 1);
      const Matrix factor = small_matrix(backend, dtype, depth, columns, 2);
      std::vector<float> bias(static_cast<std::size_t>(dense_padded(columns)));
      for (std::int64_t c = 0; c < columns; ++c) {
        bias[static_cast<std::size_t>(c)] = static_cast<float>(c % 7) + 0.5F;
      }
      const auto plain = product(backend, dtype, x, factor, {}, {0, rows});
      const auto shifted = product(backend, dtype, x, factor, bias, {0, rows});
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          double sum = 0;
          for (std::int64_t k = 0; k < depth; ++k) sum += x.at(r, k) * factor.at(k, c);
          const auto i = static_cast<std::size_t>(r * columns + c);
          ASSERT_EQ(plain[i], rounded(backend, dtype, sum)) << r << ", " << c;
          ASSERT_EQ(shifted[i], rounded(backend, dtype, sum + bias[static_cast<std::size_t>(c)]))
              << r << ", " << c;
        }
      }
    }
  });
}

TEST(DenseRows, of_a_factor_may_be_its_columns) {
  for_each_backend([](const CpuBackend& backend, DType dtype) {
    for (const std::int64_t depth : {0, 1, 7, 16, 17, 40}) {
      for (const std::int64_t columns : {1, 8, 9, 16, 17, 31, 32, 33, 41, 64}) {
        SCOPED_TRACE(testing::Message() << depth << " x " << columns);
        const Matrix rows = small_matrix(backend, dtype, depth, columns, 1);
        std::vector<float> numbers(rows.values.size());
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          const auto k = static_cast<std::int64_t>(i) % depth;
          const auto c = static_cast<std::int64_t>(i) / depth;
          numbers[i] = static_cast<float>(rows.at(k, c));
        }
        const Matrix transpose(backend, dtype, columns, depth, numbers);
        const GuardedBytes of_rows = packed(backend, dtype, rows);
        const GuardedBytes of_columns = packed(backend, dtype, transpose, true);
        const auto* expected = reinterpret_cast<const float*>(of_rows.data());
        const auto* got = reinterpret_cast<const float*>(of_columns.data());
        // The last panel may leave memory unwritten.
        for (std::int64_t i = 0; i < depth * dense_padded(columns); ++i) {
          ASSERT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
              << i;
        }
      }
    }
  });
}

TEST(DenseRows, have_the_same_bits_for_any_split_of_rows) {
  for_each_backend([](const CpuBackend& backend, DType dtype) {
    std::vector<float> uneven = small_numbers(300 * 650, 3);
    for (std::size_t i = 0; i < uneven.size(); ++i) {
      uneven[i] *= 1 + static_cast<float>(random_bits(4, 1, i) % 1024) / 1024;
    }
    const Matrix x(backend, dtype, 300, 650, uneven);
    const Matrix factor = small_matrix(backend, dtype, 650, 21, 5);
    const auto whole = product(backend, dtype, x, factor, {}, {0, 300});
    EXPECT_EQ(whole, product(backend, dtype, x, factor, {}, {0, 1, 14, 255, 300}));
  });
}

TEST(DenseRows, with_nan_or_infinity_spoil_no_other_row_or_column) {
  for_each_backend([](const CpuBackend& backend, DType dtype) {
    std::vector<float> numbers = small_numbers(13 * 20, 6);
    numbers[5 * 20 + 3] = std::numeric_limits<float>::quiet_NaN();
    numbers[12 * 20] = std::numeric_limits<float>::infinity();
    const Matrix x(backend, dtype, 13, 20, numbers);
    std::vector<float> ones(100, 1);
    const Matrix factor(backend, dtype, 20, 5, ones);
    const auto out = product(backend, dtype, x, factor, {}, {0, 13});
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / 5;
      EXPECT_EQ(std::isnan(out[i]), row == 5) << i;
      EXPECT_EQ(std::isinf(out[i]), row == 12) << i;
    }
    // Transposed: the columns of x are the rows of the sum.
    const Matrix b(backend, dtype, 13, 5, std::vector<float>(65, 1));
    const auto sums = transposed(backend, dtype, x, b);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t row = i / 5;
      EXPECT_EQ(std::isnan(sums[i]), row == 3) << i;
      EXPECT_EQ(std::isinf(sums[i]), row == 0) << i;
    }
    ones[2] = std::numeric_limits<float>::quiet_NaN();
    const Matrix spoiled(backend, dtype, 20, 5, ones);
    const Matrix whole = small_matrix(backend, dtype, 13, 20, 9);
    const auto columns = product(backend, dtype, whole, spoiled, {}, {0, 13});
    for (std::size_t i = 0; i < columns.size(); ++i) EXPECT_EQ(std::isnan(columns[i]), i % 5 == 2);
  });
}

TEST(DenseRows, transposed_are_multiplied_and_not_rounded) {
  for_each_backend([](const CpuBackend& backend, DType dtype) {
    for (const auto& [rows, heights, columns] :
         {Sizes{0, 3, 4}, Sizes{1, 1, 1}, Sizes{5, 12, 32}, Sizes{7, 13, 33}, Sizes{192, 25, 16},
          Sizes{193, 6, 17}, Sizes{400, 41, 65}, Sizes{3, 14, 513}, Sizes{200, 2, 1030},
          Sizes{2, 1025, 3}}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << heights << " x " << columns);
      const Matrix a = small_matrix(backend, dtype, rows, heights, 7);
      const Matrix b = small_matrix(backend, dtype, rows, columns, 8);
      const auto sums = transposed(backend, dtype, a, b);
      const auto added = transposed(backend, dtype, a, b, 3.0F);
      for (std::int64_t h = 0; h < heights; ++h) {
        for (std::int64_t c = 0; c < columns; ++c) {
          double sum = 0;
          for (std::int64_t r = 0; r < rows; ++r) sum += a.at(r, h) * b.at(r, c);
          const auto i = static_cast<std::size_t>(h * columns + c);
          ASSERT_EQ(sums[i], sum) << h << ", " << c;
          ASSERT_EQ(added[i], sum + 3) << h << ", " << c;
        }
      }
    }
  });
}

}  // namespace
}  // namespace mezzo::kernels
