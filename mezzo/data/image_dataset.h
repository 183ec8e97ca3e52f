#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "mezzo/core/export.h"

namespace mezzo {

/// A part of a data set of images.
enum class Split : std::uint8_t { kTrain, kTest };

/// Some images with their labels; `const auto& [image, label] = batch` takes it apart.
struct ImageBatch {
  at::Tensor images;  ///< float32 [B, C, H, W]
  at::Tensor labels;  ///< int64 [B]
};

/// The batches of one pass over images, in order; several loops may iterate over it. It shares
/// the images and stores at most their order, 8 bytes an image.
class MEZZO_API ImageBatches {
 public:
  /// Points to one batch. Dereferencing allocates the batch if the order is shuffled; else it is a
  /// view.
  class MEZZO_API Iterator {
   public:
    using value_type = ImageBatch;
    using difference_type = std::ptrdiff_t;

    ImageBatch operator*() const { return (*batches_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    void operator++(int) { ++index_; }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    friend class ImageBatches;
    Iterator(const ImageBatches& batches, std::int64_t index) : batches_(&batches), index_(index) {}

    const ImageBatches* batches_;  // outlives the loop: a range-for keeps it
    std::int64_t index_;
  };

  /// The number of batches.
  std::int64_t size() const { return size_; }
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size_}; }

  /// Batch `index` of [0, size()). Throws InvalidArgument outside.
  ImageBatch operator[](std::int64_t index) const;

 private:
  friend class ImageDataset;
  ImageBatches(at::Tensor images, at::Tensor labels, at::Tensor order, std::int64_t batch_size,
               std::int64_t size);

  at::Tensor images_, labels_;
  at::Tensor order_;  // int64 [N], row numbers; undefined if not shuffled
  std::int64_t batch_size_, size_;
};

/// Images, each of one class, on the CPU. A light handle: copies share the tensors.
class MEZZO_API ImageDataset {
 public:
  /// images: float32 [N, C, H, W], N, C, H, W >= 1; labels: int64 [N] in [0, num_classes). Throws
  /// InvalidArgument for anything else.
  ImageDataset(at::Tensor images, at::Tensor labels, std::int64_t num_classes,
               std::string name = "");

  /// The first n images, 1 <= n <= size(): views. Throws InvalidArgument outside.
  ImageDataset first(std::int64_t n) const;

  /// The number of images.
  std::int64_t size() const { return images.size(0); }
  /// The number of classes, whether or not each has an image.
  std::int64_t num_classes() const { return num_classes_; }

  /// Batches of batch_size images, the last may be smaller unless drop_last. The shuffled order
  /// depends only on the seed and the number of images (mezzo::philox), on every machine.
  /// batch_size may exceed size(). Throws InvalidArgument if batch_size < 1 and if drop_last leaves
  /// no batch.
  ImageBatches batches(std::int64_t batch_size, bool shuffle, std::uint64_t seed,
                       bool drop_last = false) const;

  at::Tensor images;  ///< float32 [N, C, H, W]; as read from IDX files: [N, 1, H, W] in [0, 1]
  at::Tensor labels;  ///< int64 [N]
  std::string name;   ///< for reports

 private:
  std::int64_t num_classes_;
};

/// Reads the images and labels of one part of a MNIST-style folder: the IDX files
/// train-images-idx3-ubyte and train-labels-idx1-ubyte, or t10k-... for kTest, also with a dot
/// before `idx`, and each plain or as .gz; a plain file has priority. Pixels become float32 in [0,
/// 1]; images [N, 1, rows, columns]; there are ten classes. Allocates the whole part (4 bytes a
/// pixel, for a moment 5 and the file). Throws IoError (with the file, expected and actual values)
/// for files that are missing, unreadable, truncated or too long, for a wrong magic number,
/// impossible sizes, different counts and labels out of range; no other errors, whatever the bytes.
MEZZO_API ImageDataset load_idx(const std::string& folder, Split split);

}  // namespace mezzo
