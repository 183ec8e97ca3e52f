#pragma once

#include <memory>
#include <utility>

#include <ATen/ATen.h>

#include "mezzo/data/formats.h"

#include "support/idx_writer.h"
#include "support/npy_writer.h"

/// Shared by the tests of the streamed formats.
namespace mezzo::test {

using Edges = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// The data set at `path`, read completely and checked.
inline Dataset read_source(const std::string& path, const LoadOptions& options = {}) {
  const std::unique_ptr<data::GraphSource> source = data::open_source(path, options);
  Dataset dataset = data::read_all(*source, options);
  dataset.validate();
  return dataset;
}

/// A bare graph, in memory.
inline Dataset read_graph(const std::string& path) {
  return read_source(path, {.labels_optional = true});
}

inline Edges edges_of(const Dataset& dataset) {
  Edges edges;
  for (std::int64_t i = 0; i < dataset.num_edges(); ++i) {
    edges.emplace_back(dataset.src[i].item<std::int64_t>(), dataset.dst[i].item<std::int64_t>());
  }
  return edges;
}

/// The items of a tensor of integers or booleans.
inline std::vector<std::int64_t> integers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kLong).reshape(-1).contiguous();
  const auto* item = flat.const_data_ptr<std::int64_t>();
  return {item, item + flat.numel()};
}

inline std::vector<float> floats_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kFloat).reshape(-1).contiguous();
  const auto* item = flat.const_data_ptr<float>();
  return {item, item + flat.numel()};
}

/// A folder with a valid data set; tests replace its files one at a time.
class SourceFolder : public testing::Test {
 protected:
  Dataset read(const LoadOptions& options = {}) const { return read_source(root(), options); }

  /// Replaces `name`, expects an IoError with all of `fragments`, and restores the file.
  testing::AssertionResult refused(const std::string& name, const std::string& bytes,
                                   std::vector<std::string> fragments) const {
    const std::string path = folder_.path("set/" + name);
    const std::string good = contents_of(path);
    folder_.write("set/" + name, bytes);
    const testing::AssertionResult result = throws<IoError>([&] { read(); }, fragments);
    folder_.write("set/" + name, good);
    return result;
  }

  testing::AssertionResult missing(const std::string& name) const {
    const std::string path = folder_.path("set/" + name);
    const std::string good = contents_of(path);
    folder_.remove("set/" + name);
    const testing::AssertionResult result =
        throws<IoError>([&] { read(); }, {path, "no such file"});
    folder_.write("set/" + name, good);
    return result;
  }

  void write(const std::string& name, const std::string& bytes) const {
    folder_.write("set/" + name, bytes);
  }

  std::string root() const { return folder_.path("set"); }

  TempFolder folder_;

 private:
  static std::string contents_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

}  // namespace mezzo::test
