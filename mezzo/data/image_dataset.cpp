#include "mezzo/data/image_dataset.h"

#include <algorithm>
#include <span>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/core/error.h"
#include "mezzo/core/shuffle.h"
#include "mezzo/data/readers.h"

namespace mezzo {
namespace {

/// The rows 0 to n - 1 in an order that depends only on the seed.
at::Tensor shuffled_rows(std::int64_t n, std::uint64_t seed) {
  constexpr std::uint64_t kStream = 0x696D61676573;  // of this use of the generator
  at::Tensor order = at::arange(n, at::kLong);
  const std::span rows(order.mutable_data_ptr<std::int64_t>(), static_cast<std::size_t>(n));
  shuffle(rows, seed, kStream, /*first_index=*/1);
  return order;
}

bool is_cpu_tensor(const at::Tensor& tensor, at::ScalarType dtype, std::int64_t dimensions) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided &&
         tensor.scalar_type() == dtype && tensor.dim() == dimensions;
}

}  // namespace

ImageBatches::ImageBatches(at::Tensor images, at::Tensor labels, at::Tensor order,
                           std::int64_t batch_size, std::int64_t size)
    : images_(std::move(images)),
      labels_(std::move(labels)),
      order_(std::move(order)),
      batch_size_(batch_size),
      size_(size) {}

ImageBatch ImageBatches::operator[](std::int64_t index) const {
  MEZZO_CHECK(index >= 0 && index < size_, "image batches: expected an index in [0, {}), got {}",
              size_, index);
  const std::int64_t begin = index * batch_size_;
  const std::int64_t count = std::min(batch_size_, images_.size(0) - begin);
  if (!order_.defined()) {
    return {images_.narrow(0, begin, count), labels_.narrow(0, begin, count)};
  }
  const at::Tensor rows = order_.narrow(0, begin, count);
  return {images_.index_select(0, rows), labels_.index_select(0, rows)};
}

ImageDataset::ImageDataset(at::Tensor given_images, at::Tensor given_labels,
                           std::int64_t num_classes, std::string given_name)
    : images(std::move(given_images)),
      labels(std::move(given_labels)),
      name(std::move(given_name)),
      num_classes_(num_classes) {
  MEZZO_CHECK(is_cpu_tensor(images, at::kFloat, 4) && images.numel() > 0,
              "images: expected float32 [N, C, H, W] on the CPU, none of them 0, got {}",
              images.defined() ? images.toString() + " " + data::shape_text(images) : "nothing");
  MEZZO_CHECK(is_cpu_tensor(labels, at::kLong, 1) && labels.size(0) == images.size(0),
              "labels: expected int64 [{}] on the CPU, got {}", images.size(0),
              labels.defined() ? labels.toString() + " " + data::shape_text(labels) : "nothing");
  const auto [low, high] = labels.aminmax();
  MEZZO_CHECK(low.item<std::int64_t>() >= 0 && high.item<std::int64_t>() < num_classes,
              "labels: expected them in [0, {}), got {} to {}", num_classes,
              low.item<std::int64_t>(), high.item<std::int64_t>());
}

ImageDataset ImageDataset::first(std::int64_t n) const {
  MEZZO_CHECK(n >= 1 && n <= size(), "images: expected 1 to {} of them, got {}", size(), n);
  ImageDataset part = *this;
  part.images = images.narrow(0, 0, n);
  part.labels = labels.narrow(0, 0, n);
  return part;
}

ImageBatches ImageDataset::batches(std::int64_t batch_size, bool shuffle, std::uint64_t seed,
                                   bool drop_last) const {
  MEZZO_CHECK(batch_size >= 1, "batch_size: expected at least 1, got {}", batch_size);
  const std::int64_t whole = size() / batch_size;
  const std::int64_t count = whole + (drop_last || size() % batch_size == 0 ? 0 : 1);
  MEZZO_CHECK(count > 0, "batch_size: {} images are less than one batch of {}, and it is dropped",
              size(), batch_size);
  return {images, labels, shuffle ? shuffled_rows(size(), seed) : at::Tensor(), batch_size, count};
}

}  // namespace mezzo
