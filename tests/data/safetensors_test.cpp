#include "mezzo/data/safetensors.h"

#include <ATen/ATen.h>

#include "support/npy_writer.h"
#include "support/tolerance.h"

namespace mezzo::data {
namespace {

using namespace mezzo::test;

using NamedArrays = std::map<std::string, at::Tensor>;

std::string safetensors_path(const std::string& name) {
  return MEZZO_TORCH_FILES "/" + name + ".safetensors";
}

TEST(Safetensors, every_dtype_is_read) {
  const NamedArrays arrays = read_safetensors(safetensors_path("dtypes"));
  EXPECT_EQ(arrays.size(), 11);
  const auto expect = [&](const char* name, const at::Tensor& expected) {
    const at::Tensor& got = arrays.at(name);
    EXPECT_EQ(got.scalar_type(), expected.scalar_type()) << name;
    EXPECT_TRUE(exact(got, expected)) << name;
    EXPECT_TRUE(got.is_contiguous()) << name;
  };
  expect("bool", at::tensor({1, 0, 1}).to(at::kBool));
  expect("uint8", at::tensor({200}).to(at::kByte));
  expect("int8", at::tensor({-3}).to(at::kChar));
  expect("int16", at::tensor({-300}).to(at::kShort));
  expect("int32", at::tensor({70000}).to(at::kInt));
  expect("int64", at::scalar_tensor(std::int64_t{1} << 40, at::kLong));
  expect("float16", at::tensor({0.5, 2.0}).to(at::kHalf));
  expect("bfloat16", at::tensor({1.5, -3.0}).to(at::kBFloat16));
  expect("float32", at::arange(6, at::kFloat).view({2, 3}));
  expect("float64", at::arange(6, at::kDouble).view({3, 1, 2}));
  expect("none", at::empty({0, 4}, at::kFloat));
}

TEST(Safetensors, tensors_that_share_memory_have_all_their_names) {
  const NamedArrays arrays = read_safetensors(safetensors_path("tied"));
  EXPECT_EQ(arrays.size(), 9);
  EXPECT_TRUE(exact(arrays.at("b.weight"), at::full({3, 2}, 0.5F)));
  EXPECT_EQ(arrays.at("b.weight").data_ptr(), arrays.at("a.weight").data_ptr());
}

/// Files of a header and data.
class SafetensorsFile : public testing::Test {
 protected:
  static std::string with_length(std::uint64_t length, const std::string& rest) {
    std::string bytes;
    append_number(bytes, length, 8);
    return bytes + rest;
  }
  std::string write(const std::string& header, const std::string& data) const {
    return folder_.write("a.safetensors", with_length(header.size(), header + data));
  }
  testing::AssertionResult refused(const std::string& path, const std::string& fault) const {
    return throws<IoError>([&] { read_safetensors(path); }, {path, fault});
  }
  /// An entry of two float32 numbers, with `changes` after its fields: the last of a name counts.
  static std::string entry(const std::string& name, const std::string& changes) {
    return "\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8])" + changes + "}";
  }
  testing::AssertionResult bad_entry(const std::string& changes, const std::string& fault) const {
    return refused(write("{" + entry("w", changes) + "}", two_), fault);
  }

  const std::string two_ = raw_bytes<float>({1.5F, -2.F});
  TempFolder folder_;
};

TEST_F(SafetensorsFile, a_file_without_tensors_is_read) {
  EXPECT_TRUE(read_safetensors(write("{}", "")).empty());
  EXPECT_TRUE(read_safetensors(write(R"({"__metadata__":{"a":"b","b":1}})", "")).empty());
  const std::string path = write("{" + entry("w", "") + "}", two_);
  EXPECT_TRUE(exact(read_safetensors(path).at("w"), at::tensor({1.5F, -2.F})));
}

TEST_F(SafetensorsFile, entries_that_are_not_of_the_format_are_refused) {
  EXPECT_TRUE(refused(write(R"({"w":1})", ""), "w: expected an object"));
  EXPECT_TRUE(refused(write(R"({"w":{}})", ""), "'dtype'"));
  EXPECT_TRUE(bad_entry(R"(,"dtype":"F8_E4M3")", "the dtype 'F8_E4M3' is not read"));
  EXPECT_TRUE(bad_entry(R"(,"dtype":32)", "'dtype'"));
  EXPECT_TRUE(bad_entry(R"(,"dtype":"F64")", "needs 16 bytes"));
  EXPECT_TRUE(bad_entry(R"(,"shape":[3])", "needs 12 bytes"));
  EXPECT_TRUE(bad_entry(R"(,"shape":[-2])", "'shape'"));
  EXPECT_TRUE(bad_entry(R"(,"shape":[2.0])", "'shape'"));
  EXPECT_TRUE(bad_entry(R"(,"shape":2)", "'shape'"));
  EXPECT_TRUE(bad_entry(R"(,"shape":[18446744073709551615])", "'shape'"));
  EXPECT_TRUE(bad_entry(R"(,"shape":[4611686018427387904,4611686018427387904])", "overflows"));
  EXPECT_TRUE(bad_entry(R"(,"shape":[0,4611686018427387904,9])", "overflows"));
  EXPECT_TRUE(bad_entry(R"(,"data_offsets":[8,0])", "'data_offsets'"));
  EXPECT_TRUE(bad_entry(R"(,"data_offsets":[0])", "'data_offsets'"));
  EXPECT_TRUE(bad_entry(R"(,"data_offsets":[0,"8"])", "'data_offsets'"));
  std::string sizes = "1";
  for (int i = 0; i < 32; ++i) sizes += ",1";
  EXPECT_TRUE(bad_entry(",\"shape\":[" + sizes + "]", "'shape'"));
}

TEST_F(SafetensorsFile, overlaps_holes_and_data_beyond_the_file_are_refused) {
  const auto file = [&](const std::string& changes, const std::string& data) {
    return write("{" + entry("a", "") + "," + entry("b", changes) + "}", data);
  };
  EXPECT_EQ(read_safetensors(file(R"(,"data_offsets":[8,16])", two_ + two_)).size(), 2);
  EXPECT_TRUE(refused(file("", two_), "'b' begins at byte 0 of the data, expected 8"));
  EXPECT_TRUE(refused(file(R"(,"data_offsets":[4,12])", two_ + two_), "byte 4"));
  EXPECT_TRUE(refused(file(R"(,"data_offsets":[12,20])", two_ + two_), "byte 12"));
  EXPECT_TRUE(refused(file(R"(,"data_offsets":[8,16])", two_), "have 16 bytes, the file has 8"));
  EXPECT_TRUE(refused(file(R"(,"data_offsets":[8,16])", two_ + two_ + "x"), "the file has 17"));
}

TEST_F(SafetensorsFile, other_files_are_refused) {
  const auto file_refused = [&](const std::string& bytes, const std::string& fault) {
    return refused(folder_.write("a.safetensors", bytes), fault);
  };
  EXPECT_TRUE(file_refused("", "truncated"));
  EXPECT_TRUE(file_refused("1234567", "truncated"));
  EXPECT_TRUE(file_refused(with_length(3, "{}"), "a header of 3 bytes"));
  EXPECT_TRUE(file_refused(with_length(std::uint64_t{1} << 63, "{}"), "a header of"));
  EXPECT_TRUE(file_refused(with_length(~std::uint64_t{0}, "{}"), "a header of"));
  EXPECT_TRUE(file_refused(with_length(2, "[]"), "no JSON object"));
  EXPECT_TRUE(file_refused(with_length(2, "{x"), "no JSON object"));
  EXPECT_TRUE(file_refused("PK\x03\x04 a zip file of another kind", "no .safetensors file"));
  EXPECT_TRUE(refused(folder_.path("none.safetensors"), "no such file"));
  const std::string deep(100'000, '[');
  EXPECT_TRUE(file_refused(with_length(deep.size(), deep), "no JSON object"));
}

TEST_F(SafetensorsFile, a_damaged_file_gives_tensors_or_an_io_error) {
  constexpr std::size_t kStep = 3;
  std::ifstream file(safetensors_path("dtypes"), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t i = 0; i < bytes.size(); i += kStep) {
    EXPECT_TRUE(refused(folder_.write("a.safetensors", bytes.substr(0, i)), "")) << i;
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 == 0 ? 1 : 128));
    try {
      EXPECT_FALSE(read_safetensors(folder_.write("a.safetensors", damaged)).empty());
    } catch (const IoError&) {
    }
  }
}

}  // namespace
}  // namespace mezzo::data
