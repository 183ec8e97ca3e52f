#include "mezzo/core/dtype.h"

#include <limits>
#include <type_traits>

#include <gtest/gtest.h>

#include "mezzo/core/error.h"
#include "mezzo/core/parse.h"

namespace mezzo {
namespace {

TEST(DType, epsilon_is_the_gap_above_one) {
  EXPECT_EQ(Float32::epsilon, std::numeric_limits<float>::epsilon());
  EXPECT_EQ(Float64::epsilon, std::numeric_limits<double>::epsilon());
  EXPECT_EQ(BFloat16::epsilon, 1.0 / 128);  // 8 significant bits
  EXPECT_EQ(Float16::epsilon, 1.0 / 1024);  // 11 significant bits
}

TEST(DType, sixteen_bit_types_accumulate_in_float32_and_the_others_in_themselves) {
  mezzo::detail::for_each(DTypes{}, []<class T>() {
    using Storage = typename T::Storage;
    using Accum = typename T::Accum;
    if (sizeof(Storage) == 2) {
      EXPECT_TRUE((std::is_same_v<Accum, float>)) << T::name;
    } else {
      EXPECT_TRUE((std::is_same_v<Accum, Storage>)) << T::name;
    }
  });
}

TEST(DType, storage_has_the_size_of_the_stored_number) {
  EXPECT_EQ(sizeof(BFloat16::Storage), 2U);
  EXPECT_EQ(sizeof(Float16::Storage), 2U);
  EXPECT_EQ(sizeof(Float32::Storage), 4U);
  EXPECT_EQ(sizeof(Float64::Storage), 8U);
}

TEST(DType, words_of_the_command_line_parse) {
  EXPECT_EQ(parse(DTypes{}, "dtype", "bfloat16"), DType::kBFloat16);
  EXPECT_EQ(parse(DTypes{}, "dtype", "float64"), DType::kFloat64);
  EXPECT_THROW(parse(DTypes{}, "dtype", "half"), InvalidArgument);
}

}  // namespace
}  // namespace mezzo
