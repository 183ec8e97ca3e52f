#include "mezzo/data/pickle/torch_file.h"

#include <ATen/ATen.h>

#include "data/pickle/pickle_writer.h"
#include "support/tolerance.h"

namespace mezzo::data {
namespace {

using namespace mezzo::test;
namespace p = mezzo::test::pickle;

using Arrays = std::map<std::string, at::Tensor>;

std::string path_of(const std::string& name) {
  return MEZZO_TORCH_FILES "/" + name;
}

std::string contents_of(const std::string& name) {
  std::ifstream file(path_of(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_of(const Arrays& arrays) {
  std::vector<std::string> names;
  for (const auto& [name, array] : arrays) names.push_back(name);
  return names;
}

/// Zip files have checksums: fewer places are enough.
std::size_t step_of(const std::string& bytes) {
  constexpr std::size_t kInZip = 17;
  return bytes.starts_with("PK") ? kInZip : 1;
}

at::Tensor edges() {
  return at::tensor({0, 200, 3, 1, 2, 2}, at::kLong).view({3, 2});
}

TEST(TorchFile, arrays_of_both_forms_are_read) {
  for (const char* name : {"arrays.pt", "arrays_old.pt"}) {
    const Arrays arrays = read_torch_file(path_of(name));
    EXPECT_EQ(names_of(arrays), (std::vector<std::string>{"edge", "none", "weight"})) << name;
    EXPECT_TRUE(at::equal(arrays.at("edge"), edges())) << name;
    EXPECT_TRUE(at::equal(arrays.at("weight"), at::tensor({0.5F, -1.F, 3.F}))) << name;
    EXPECT_EQ(arrays.at("none").sizes(), at::IntArrayRef({0})) << name;
  }
}

TEST(TorchFile, tensors_of_both_forms_are_read) {
  for (const char* name : {"tensors.pt", "tensors_old.pt"}) {
    const Arrays arrays = read_torch_file(path_of(name));
    EXPECT_TRUE(at::equal(arrays.at("edge"), edges())) << name;
    EXPECT_TRUE(arrays.at("neg").is_contiguous()) << name;
    EXPECT_TRUE(at::equal(arrays.at("neg"), at::arange(8).view({2, 4}).t())) << name;
    EXPECT_TRUE(at::equal(arrays.at("mask"), at::tensor({1, 0}, at::kLong).to(at::kBool))) << name;
    EXPECT_TRUE(at::equal(arrays.at("half"), at::tensor({0.5F, 2.F}).to(at::kHalf))) << name;
    EXPECT_EQ(arrays.at("none").sizes(), at::IntArrayRef({0, 2})) << name;
  }
}

TEST(TorchFile, nested_dicts_and_single_tensors_are_read) {
  const Arrays split = read_torch_file(path_of("split_dict.pt"));
  EXPECT_EQ(names_of(split), (std::vector<std::string>{"train/edge", "valid/edge"}));
  EXPECT_TRUE(at::equal(split.at("valid/edge"), edges()));
  const Arrays one = read_torch_file(path_of("tensor.pt"));
  EXPECT_EQ(names_of(one), std::vector<std::string>{""});
  EXPECT_TRUE(at::equal(one.at(""), at::arange(6).view({3, 2}).to(at::kFloat)));
}

TEST(TorchFile, state_dicts_of_both_forms_are_read) {
  for (const char* name : {"state.pt", "state_old.pt"}) {
    SCOPED_TRACE(name);
    const Arrays state = read_state_dict(path_of(name));
    EXPECT_EQ(state.size(), 5 + 4 + 3 + 65);
    EXPECT_TRUE(same_bits(state.at("norm.num_batches_tracked"), at::zeros({}, at::kLong)));
    EXPECT_TRUE(same_bits(state.at("norm.weight"), at::ones({2})));
    EXPECT_TRUE(same_bits(state.at("bfloat"), at::tensor({1.5, -3.0}).to(at::kBFloat16)));
    EXPECT_TRUE(same_bits(state.at("half"), at::tensor({0.5, 2.0}).to(at::kHalf)));
    EXPECT_TRUE(same_bits(state.at("many.64"), at::scalar_tensor(64, at::kLong)));
    const at::Tensor deep = at::arange(24, at::kDouble).view({2, 3, 4}).transpose(0, 2);
    EXPECT_TRUE(same_bits(state.at("deep"), deep.narrow(0, 1, 2)));
    EXPECT_EQ(state.at("a.weight").data_ptr(), state.at("b.weight").data_ptr());
    EXPECT_TRUE(same_bits(state.at("b.bias"), at::full({3}, -2.F)));
  }
}

TEST(TorchFile, every_truncation_is_an_io_error) {
  const TempFolder folder;
  for (const char* name : {"arrays.pt", "arrays_old.pt", "tensors.pt", "tensors_old.pt"}) {
    const std::string bytes = contents_of(name);
    for (std::size_t size = 0; size < bytes.size(); size += step_of(bytes)) {
      const std::string path = folder.write("a.pt", bytes.substr(0, size));
      EXPECT_THROWS(IoError, path, read_torch_file(path)) << name << " " << size;
    }
    const std::string path = folder.write("a.pt", bytes + "x");
    EXPECT_THROWS(IoError, path, read_torch_file(path)) << name;
  }
}

TEST(TorchFile, a_changed_byte_gives_numbers_or_an_io_error) {
  const TempFolder folder;
  for (const char* name : {"arrays.pt", "arrays_old.pt", "tensors.pt", "tensors_old.pt"}) {
    const std::string bytes = contents_of(name);
    for (std::size_t i = 0; i < bytes.size(); i += step_of(bytes)) {
      for (const int change : {1, 128}) {
        std::string damaged = bytes;
        damaged[i] = static_cast<char>(damaged[i] ^ change);
        try {
          EXPECT_FALSE(read_torch_file(folder.write("a.pt", damaged)).empty());
        } catch (const IoError&) {
        }
      }
    }
  }
}

TEST(TorchFile, a_damaged_state_dict_gives_tensors_or_an_io_error) {
  constexpr std::size_t kStep = 97;
  const TempFolder folder;
  for (const char* name : {"state.pt", "state_old.pt"}) {
    const std::string bytes = contents_of(name);
    for (std::size_t i = 0; i < bytes.size(); i += kStep) {
      const std::string path = folder.write("a.pt", bytes.substr(0, i));
      EXPECT_THROWS(IoError, path, read_state_dict(path)) << name << " " << i;
      std::string damaged = bytes;
      damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 == 0 ? 1 : 128));
      try {
        EXPECT_FALSE(read_state_dict(folder.write("a.pt", damaged)).empty());
      } catch (const IoError&) {
      }
    }
  }
}

/// Zip files with a pickle and the storage "0" of these bytes.
class TorchZip : public testing::Test {
 protected:
  std::string write(const std::string& value, const std::string& storage = "") const {
    return folder_.write("a.pt",
                         zip_bytes({{"a/data.pkl", p::file(value)}, {"a/data/0", storage}}));
  }
  testing::AssertionResult refused(const std::string& value, const std::string& fault,
                                   const std::string& storage = "") const {
    const std::string path = write(value, storage);
    return throws<IoError>([&] { read_torch_file(path); }, {path, fault});
  }

  static std::string storage(std::int32_t numel, const std::string& type = "LongStorage",
                             const std::string& key = "0") {
    return p::tuple({p::text("storage"), p::name("torch", type), p::text(key), p::text("cpu"),
                     p::number(numel)}) +
           "Q";
  }
  static std::string tensor(const std::string& storage, std::int32_t offset,
                            const std::vector<std::int64_t>& sizes,
                            const std::vector<std::int64_t>& strides) {
    return p::name("torch._utils", "_rebuild_tensor_v2") +
           p::tuple({storage, p::number(offset), p::numbers_tuple(sizes), p::numbers_tuple(strides),
                     "\x89", p::name("collections", "OrderedDict") + ")R"}) +
           "R";
  }

  const std::string four_ = raw_bytes<std::int64_t>({5, 6, 7, 8});
  TempFolder folder_;
};

TEST_F(TorchZip, a_view_is_read) {
  const Arrays arrays = read_torch_file(write(tensor(storage(4), 1, {3}, {1}), four_));
  EXPECT_TRUE(at::equal(arrays.at(""), at::tensor({6, 7, 8}, at::kLong)));
}

TEST_F(TorchZip, views_beyond_their_storage_are_refused) {
  const auto bad = [&](std::int32_t offset, const std::vector<std::int64_t>& sizes,
                       const std::vector<std::int64_t>& strides, const std::string& fault) {
    return refused(tensor(storage(4), offset, sizes, strides), fault, four_);
  };
  EXPECT_TRUE(bad(1, {4}, {1}, "beyond the 4 numbers"));
  EXPECT_TRUE(bad(0, {2, 2}, {3, 1}, "beyond the 4 numbers"));
  EXPECT_TRUE(bad(0, {2}, {2'000'000'000}, "stride 2000000000"));
  EXPECT_TRUE(bad(5, {0}, {1}, "an offset of 5 in 4"));
  EXPECT_TRUE(bad(-1, {1}, {1}, "an offset of -1"));
  EXPECT_TRUE(bad(0, {-1}, {1}, "size -1"));
  EXPECT_TRUE(bad(0, {2}, {-1}, "stride -1"));
  EXPECT_TRUE(bad(0, {2}, {}, "1 sizes and 0 strides"));
  EXPECT_TRUE(bad(0, {1, 1, 1}, {1, 1, 1}, "3 sizes"));
  // Would be larger than the file.
  EXPECT_TRUE(bad(0, {2'000'000'000}, {0}, "size 2000000000 in a storage of 4"));
  EXPECT_TRUE(bad(0, {3, 3}, {1, 0}, "size 3 in a storage of 4"));
}

TEST_F(TorchZip, storages_that_contradict_the_file_are_refused) {
  EXPECT_TRUE(refused(tensor(storage(5), 0, {5}, {1}), "needs 40 bytes", four_));
  EXPECT_TRUE(refused(tensor(storage(-1), 0, {1}, {1}), "-1 numbers", four_));
  EXPECT_TRUE(
      refused(tensor(storage(4, "LongStorage", "1"), 0, {4}, {1}), "/data/1 is missing", four_));
  EXPECT_TRUE(refused(tensor(storage(4, "LongStorage", "../data.pkl"), 0, {4}, {1}), "is missing"));
  EXPECT_TRUE(refused(tensor(storage(4, "ComplexFloatStorage"), 0, {4}, {1}),
                      "'torch.ComplexFloatStorage' is refused", four_));
  EXPECT_TRUE(refused(tensor(storage(32, "BoolStorage"), 0, {4}, {1}), "boolean", four_));
  const std::string named_list = p::tuple({p::text("storage"), p::name("__builtin__", "list"),
                                           p::text("0"), p::text("cpu"), p::number(4)}) +
                                 "Q";
  EXPECT_TRUE(refused(tensor(named_list, 0, {4}, {1}), "dtype that is not read", four_));
  EXPECT_TRUE(refused("NQ", "expected a tuple"));
  EXPECT_TRUE(refused(p::tuple({p::text("module")}) + "Q", "expected the type, key"));
  EXPECT_TRUE(refused(tensor("N", 0, {4}, {1}), "expected the storage of a tensor"));
}

TEST_F(TorchZip, other_values_and_too_many_are_refused) {
  EXPECT_TRUE(refused("N", "no tensors or arrays"));
  EXPECT_TRUE(refused(p::dict({{p::text("a"), p::text("b")}}), "no tensors or arrays"));
  EXPECT_TRUE(refused(p::dict({{p::number(1), "N"}}), "keys that are no text"));
  EXPECT_TRUE(refused(p::dict({{p::text(""), "N"}}), "keys that are no text"));
  const std::string one = p::int32_array({1}, {1});
  EXPECT_TRUE(refused(p::dict({{p::text("a"), one}, {p::text("a"), one}}), "'a' occurs twice"));
  std::vector<std::pair<std::string, std::string>> many;
  for (int i = 0; i < 65; ++i) many.emplace_back(p::text(std::to_string(i)), one);
  EXPECT_TRUE(refused(p::dict(many), "more than 64 items"));
  std::string deep = one;
  for (int i = 0; i < 3; ++i) deep = p::dict({{p::text("a"), deep}});
  EXPECT_TRUE(refused(deep, "nested three times"));
  const std::string cycle = std::string("}q\0(", 4) + p::text("a") + std::string("h\0u", 3);
  EXPECT_TRUE(refused(cycle, "nested three times"));
  EXPECT_TRUE(refused(p::name("torch", "load") + p::tuple({p::text("x")}) + "R",
                      "'torch.load' is refused"));
  EXPECT_TRUE(
      refused(p::name("_codecs", "encode") + p::tuple({p::text("x"), p::text("utf16")}) + "R",
              "a call that is neither"));
}

TEST_F(TorchZip, other_values_than_a_dict_of_tensors_are_no_state) {
  const auto no_state = [&](const std::string& value, const std::string& fault) {
    const std::string path = write(value, four_);
    return throws<IoError>([&] { read_state_dict(path); }, {path, fault, "model.state_dict()"});
  };
  const std::string four = tensor(storage(4), 0, {4}, {1});
  EXPECT_TRUE(no_state(four, "holds no dict"));
  EXPECT_TRUE(no_state(p::dict({{p::number(1), four}}), "keys are not strings"));
  EXPECT_TRUE(no_state(p::dict({{p::text("epoch"), p::number(3)}}), "no tensor under 'epoch'"));
  EXPECT_TRUE(no_state(p::dict({{p::text("model"), p::dict({{p::text("w"), four}})}}),
                       "no tensor under 'model'"));
}

TEST_F(TorchZip, a_state_that_contradicts_itself_is_refused) {
  const auto bad = [&](const std::string& value, const std::string& fault) {
    const std::string path = write(value, four_);
    return throws<IoError>([&] { read_state_dict(path); }, {path, fault});
  };
  const auto two = [&](const std::string& other) {
    return p::dict({{p::text("a"), tensor(storage(4), 0, {4}, {1})}, {p::text("b"), other}});
  };
  EXPECT_TRUE(bad(two(tensor(storage(3), 0, {3}, {1})), "a storage of 4 and of 3 numbers"));
  EXPECT_TRUE(bad(two(tensor(storage(4, "IntStorage"), 0, {4}, {1})), "needs 16 bytes"));
  EXPECT_TRUE(bad(two(tensor(storage(4), 1, {2, 1, 1}, {3, 1, 1})), "beyond the 4 numbers"));
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  EXPECT_TRUE(bad(two(tensor(storage(4), 0, {0, most, most}, {1, 1, 1})), "a tensor of size"));
  const std::string four = tensor(storage(4), 0, {4}, {1});
  EXPECT_TRUE(bad(p::dict({{p::text("a"), four}, {p::text("a"), four}}), "'a' occurs twice"));
  EXPECT_TRUE(bad(p::dict({{p::text("a"), four}}) + p::number(1) + "b", "a dict of attributes"));
}

TEST_F(TorchZip, bytes_that_are_not_latin1_are_refused) {
  const auto of = [](const std::string& text) {
    return p::empty_array() +
           p::tuple({p::number(1), p::numbers_tuple({1}), p::dtype("u1", "|"), "\x89",
                     p::name("_codecs", "encode") + p::tuple({p::text(text), p::text("latin1")}) +
                         "R"}) +
           "b";
  };
  EXPECT_EQ(read_torch_file(write(of("\xC3\xBF"))).at("").item<std::int64_t>(), 255);
  EXPECT_EQ(read_torch_file(write(of("\xC2\x80"))).at("").item<std::int64_t>(), 128);
  for (const char* bad : {"\xC4\x80", "\xC3", "\xC3z", "\x80", "\xE2\x82\xAC"}) {
    EXPECT_TRUE(refused(of(bad), "not Latin-1")) << bad;
  }
}

TEST_F(TorchZip, archives_of_other_kinds_are_refused) {
  const auto zip_refused = [&](const std::vector<ZipMember>& members, const std::string& fault) {
    const std::string path = folder_.write("a.pt", zip_bytes(members));
    return throws<IoError>([&] { read_torch_file(path); }, {path, fault});
  };
  const std::string good = p::file(p::int32_array({1}, {1}));
  EXPECT_TRUE(zip_refused({{"a.npy", "x"}}, "no member */data.pkl"));
  EXPECT_TRUE(zip_refused({{"a/data.pkl", good}, {"b/data.pkl", good}}, "two members"));
  EXPECT_TRUE(zip_refused({{"a/data.pkl", good}, {"a/byteorder", "big"}}, "big-endian"));
  EXPECT_THROWS(IoError, "no file of torch.save", read_torch_file(folder_.write("b.pt", "text")));
  EXPECT_THROWS(IoError, "no such file", read_torch_file(folder_.path("none.pt")));
}

}  // namespace
}  // namespace mezzo::data
