#include <algorithm>
#include <map>

#include "mezzo/data/image_dataset.h"

#include "support/idx_writer.h"
#include "support/npy_writer.h"
#include "support/tolerance.h"

namespace mezzo::test {
namespace {

constexpr auto kImages = "train-images-idx3-ubyte";
constexpr auto kLabels = "train-labels-idx1-ubyte";

// One literal, because gcc 12 warns about its own std::string operator+ (GCC bug 105329).
std::string packed_images() {
  return "train-images-idx3-ubyte.gz";
}

/// Three images of 2 x 4.
std::string pixels() {
  std::string bytes;
  for (int i = 0; i < 24; ++i) bytes += static_cast<char>(i * 11);
  return bytes;
}
std::string image_file() {
  return idx(kImageMagic, {3, 2, 4}, pixels());
}
std::string label_file() {
  return idx(kLabelMagic, {3}, std::string("\x09\x00\x04", 3));
}

class Idx : public testing::Test {
 protected:
  Idx() {
    folder_.write(kImages, image_file());
    folder_.write(kLabels, label_file());
  }

  /// Whether loading throws an IoError whose text contains `parts`.
  testing::AssertionResult refused(const std::vector<std::string>& parts) const {
    return throws<IoError>([&] { load_idx(folder_.path(), Split::kTrain); }, parts);
  }
  testing::AssertionResult refused(const std::string& name, std::string_view bytes,
                                   std::vector<std::string> parts) const {
    parts.push_back(folder_.write(name, bytes));
    return refused(parts);
  }

  TempFolder folder_;
};

TEST_F(Idx, pixels_become_numbers_from_0_to_1_and_labels_integers) {
  const ImageDataset data = load_idx(folder_.path(), Split::kTrain);
  ASSERT_EQ(data.images.sizes(), (std::vector<std::int64_t>{3, 1, 2, 4}));
  const at::Tensor bytes = at::arange(24).mul(11).reshape({3, 1, 2, 4}).to(at::kFloat);
  EXPECT_TRUE(same_bits(data.images, bytes / 255));
  EXPECT_TRUE(same_bits(data.labels, ids({9, 0, 4})));
  EXPECT_EQ(data.size(), 3);
  EXPECT_EQ(data.num_classes(), 10);
}

TEST_F(Idx, all_spellings_and_gzip_read_the_same) {
  const ImageDataset plain = load_idx(folder_.path(), Split::kTrain);
  for (const std::string& joint : {std::string("-"), std::string(".")}) {
    for (const bool packed : {false, true}) {
      const TempFolder other;
      const std::string end = packed ? ".gz" : "";
      other.write("t10k-images" + joint + "idx3-ubyte" + end,
                  packed ? gzip(image_file()) : image_file());
      other.write("t10k-labels" + joint + "idx1-ubyte" + end,
                  packed ? gzip(label_file()) : label_file());
      const ImageDataset data = load_idx(other.path(), Split::kTest);
      EXPECT_TRUE(same_bits(data.images, plain.images)) << joint << end;
      EXPECT_TRUE(same_bits(data.labels, plain.labels)) << joint << end;
      EXPECT_THROWS(IoError, fragments(other.path(), "train-images"),
                    load_idx(other.path(), Split::kTrain));
    }
  }
}

TEST_F(Idx, a_gzip_file_of_several_members_is_one_file) {
  const ImageDataset plain = load_idx(folder_.path(), Split::kTrain);
  folder_.remove(kImages);
  const std::string bytes = image_file();
  folder_.write(packed_images(), gzip(bytes.substr(0, 20)) + gzip(bytes.substr(20)));
  EXPECT_TRUE(same_bits(load_idx(folder_.path(), Split::kTrain).images, plain.images));
}

TEST_F(Idx, a_missing_file_or_folder_is_an_io_error_that_names_it) {
  folder_.remove(kLabels);
  EXPECT_TRUE(refused({folder_.path(), kLabels}));
  EXPECT_THROWS(IoError, fragments(folder_.path("none"), "no such folder"),
                load_idx(folder_.path("none"), Split::kTrain));
  EXPECT_THROWS(IoError, "no such folder", load_idx("", Split::kTrain));
  folder_.write(std::string(kLabels) + "/inside", "");
  EXPECT_TRUE(refused({"not a regular file", kLabels}));
}

TEST_F(Idx, a_wrong_magic_number_is_an_io_error_with_both) {
  EXPECT_TRUE(
      refused(kImages, idx(kLabelMagic, {3, 2, 4}, pixels()), {"0x00000803", "0x00000801"}));
  EXPECT_TRUE(refused(kImages, idx(0xD03, {3, 2, 4}, pixels()), {"0x00000d03"}));
  folder_.write(kImages, image_file());
  EXPECT_TRUE(refused(kLabels, image_file(), {"0x00000801", "0x00000803"}));
}

TEST_F(Idx, every_truncation_is_an_io_error) {
  const std::string bytes = image_file(), packed = gzip(bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_TRUE(refused(kImages, bytes.substr(0, size), {})) << size;
  }
  folder_.remove(kImages);
  for (std::size_t size = 0; size < packed.size(); ++size) {
    EXPECT_TRUE(refused(packed_images(), packed.substr(0, size), {})) << size;
  }
}

TEST_F(Idx, bytes_left_over_are_an_io_error) {
  EXPECT_TRUE(refused(kImages, image_file() + "x", {"[3, 2, 4]", "24 bytes", "more"}));
  folder_.remove(kImages);
  const std::string packed = packed_images();
  EXPECT_TRUE(refused(packed, gzip(image_file() + "x"), {"more"}));
  EXPECT_TRUE(refused(packed, gzip(image_file()) + "x", {"gzip"}));
}

TEST_F(Idx, sizes_that_cannot_be_the_files_are_io_errors_before_memory_is_taken) {
  EXPECT_TRUE(refused(kImages, idx(kImageMagic, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, pixels()),
                      {"4294967295", "at most 40"}));
  EXPECT_TRUE(
      refused(kImages, idx(kImageMagic, {0x80000000, 0x80000000, 4}, pixels()), {"at most"}));
  EXPECT_TRUE(refused(kImages, idx(kImageMagic, {0, 2, 4}, ""), {"[0, 2, 4]", "at least 1"}));
  folder_.remove(kImages);
  EXPECT_TRUE(refused(packed_images(), gzip(idx(kImageMagic, {0x10000, 0x1000, 4}, pixels())),
                      {"at most"}));
}

TEST_F(Idx, counts_that_differ_are_an_io_error_with_both) {
  EXPECT_TRUE(refused(kLabels, idx(kLabelMagic, {2}, std::string("\x01\x02")),
                      {"expected 3 labels", "got 2"}));
}

TEST_F(Idx, a_label_out_of_range_is_an_io_error_that_names_the_item) {
  EXPECT_TRUE(refused(kLabels, idx(kLabelMagic, {3}, std::string("\x09\x0A\x04")),
                      {"[0, 10)", "got 10 for item 1"}));
}

TEST_F(Idx, a_changed_byte_of_a_gzip_file_is_noticed) {
  const ImageDataset truth = load_idx(folder_.path(), Split::kTrain);
  folder_.remove(kImages);
  const std::string packed = gzip(image_file());
  for (std::size_t i = 0; i < packed.size(); ++i) {
    std::string damaged = packed;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 == 0 ? 1 : 255));
    folder_.write(packed_images(), damaged);
    try {
      // The checksum protects the contents: if the file still loads, they are unchanged.
      const ImageDataset read = load_idx(folder_.path(), Split::kTrain);
      EXPECT_TRUE(same_bits(read.images, truth.images)) << i;
    } catch (const IoError&) {
    }
  }
}

/// n images of 1 x 2 x 2, image i has the value i and the label i % 5.
ImageDataset numbered(std::int64_t n) {
  const at::Tensor images = at::arange(n, at::kFloat).reshape({n, 1, 1, 1}).expand({n, 1, 2, 2});
  return {images.contiguous(), at::arange(n).remainder(5), 5};
}

/// The values of the images in batch order.
std::vector<float> order_of(const ImageBatches& batches) {
  std::vector<float> order;
  for (const auto& [image, label] : batches) {
    EXPECT_EQ(image.size(0), label.size(0));
    for (std::int64_t i = 0; i < image.size(0); ++i) {
      order.push_back(image[i].max().item<float>());
      EXPECT_EQ(label[i].item<std::int64_t>(), static_cast<std::int64_t>(order.back()) % 5);
    }
  }
  return order;
}

TEST(ImageDataset, batches_have_every_image_once_in_an_order_of_the_seed) {
  const ImageDataset data = numbered(23);
  const std::vector<float> rows = order_of(data.batches(4, false, 7));
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
  const std::vector<float> shuffled = order_of(data.batches(4, true, 7));
  EXPECT_NE(shuffled, rows);
  EXPECT_EQ(order_of(data.batches(5, true, 7)), shuffled) << "whatever the batch size";
  EXPECT_NE(order_of(data.batches(4, true, 8)), shuffled);
  std::vector<float> sorted = shuffled;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, rows);
}

TEST(ImageDataset, every_order_of_three_images_is_as_likely) {
  const ImageDataset data = numbered(3);
  std::map<std::vector<float>, int> seen;
  constexpr int kDraws = 6000;
  for (int seed = 0; seed < kDraws; ++seed) {
    ++seen[order_of(data.batches(3, true, static_cast<std::uint64_t>(seed)))];
  }
  ASSERT_EQ(seen.size(), 6U);
  // Six standard deviations of a binomial count.
  const double expected = kDraws / 6.0, deviation = std::sqrt(expected * 5 / 6);
  for (const auto& [order, count] : seen) EXPECT_LT(std::abs(count - expected), 6 * deviation);
}

TEST(ImageDataset, the_last_batch_has_what_is_left_or_is_dropped) {
  const ImageDataset data = numbered(10);
  const ImageBatches all = data.batches(4, true, 0), dropped = data.batches(4, true, 0, true);
  EXPECT_EQ(all.size(), 3);
  EXPECT_EQ(all[2].images.size(0), 2);
  EXPECT_EQ(dropped.size(), 2);
  EXPECT_EQ(order_of(dropped).size(), 8U);
  EXPECT_EQ(data.batches(5, true, 0, true).size(), 2);
  EXPECT_EQ(data.batches(100, false, 0).size(), 1);
}

TEST(ImageDataset, batches_in_order_and_first_images_share_memory) {
  const ImageDataset data = numbered(10);
  EXPECT_EQ(data.first(6).images.data_ptr(), data.images.data_ptr());
  EXPECT_EQ(data.first(6).size(), 6);
  EXPECT_EQ(data.first(1).num_classes(), 5);
  const ImageBatches batches = data.batches(4, false, 0);
  EXPECT_EQ(batches[0].images.data_ptr(), data.images.data_ptr());
}

TEST(ImageDataset, what_it_cannot_do_is_an_invalid_argument) {
  const ImageDataset data = numbered(10);
  EXPECT_THROWS(InvalidArgument, fragments("1 to 10", "got 0"), data.first(0));
  EXPECT_THROWS(InvalidArgument, "got 11", data.first(11));
  EXPECT_THROWS(InvalidArgument, "got 0", data.batches(0, false, 0));
  EXPECT_THROWS(InvalidArgument, "dropped", data.batches(11, false, 0, true));
  EXPECT_THROWS(InvalidArgument, "[0, 3)", data.batches(4, false, 0)[3]);
  const at::Tensor images = at::zeros({2, 1, 3, 3}), labels = ids({0, 1});
  const auto make = [](const at::Tensor& i, const at::Tensor& l) { ImageDataset(i, l, 2); };
  EXPECT_NO_THROW(make(images, labels));
  EXPECT_THROWS(InvalidArgument, "images", make(at::Tensor(), labels));
  EXPECT_THROWS(InvalidArgument, "images", make(images.to(at::kByte), labels));
  EXPECT_THROWS(InvalidArgument, "[2, 3, 3]", make(images.squeeze(1), labels));
  EXPECT_THROWS(InvalidArgument, "labels", make(images, at::zeros({2})));
  EXPECT_THROWS(InvalidArgument, "[2]", make(images, ids({0})));
  EXPECT_THROWS(InvalidArgument, "[0, 2)", make(images, ids({0, 2})));
  EXPECT_THROWS(InvalidArgument, "-1", make(images, ids({0, -1})));
}

}  // namespace
}  // namespace mezzo::test
