#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mezzo/core/error.h"
#include "mezzo/core/huge_pages.h"
#include "mezzo/kernels/sampling.h"
#include "mezzo/sampling/workspace.h"

namespace mezzo {
namespace detail {

/// Memory that grows to the largest request and stays allocated; on huge pages if it is large.
class ScratchBuffer {
 public:
  /// Memory for `count` elements. Growing loses their values.
  template <class T>
  T* reserve(std::int64_t count) {
    return extend<T>(0, count);
  }
  /// Memory for `count` elements; the first `used` keep their values.
  template <class T>
  T* extend(std::int64_t used, std::int64_t count) {
    grow(used * static_cast<std::int64_t>(sizeof(T)), count * static_cast<std::int64_t>(sizeof(T)));
    return data<T>();
  }
  template <class T>
  T* data() const {
    return reinterpret_cast<T*>(memory_.get());
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  void grow(std::int64_t used_bytes, std::int64_t bytes);

  std::unique_ptr<std::byte, Free> memory_;
  std::int64_t bytes_ = 0;
};

/// Numbers the nodes of a batch in order of appearance, with a table of 4 bytes per node of the
/// graph, which is cleared once in about 2^31 numbers.
class NodeNumbers {
 public:
  /// Begins a batch of a graph of `num_nodes` nodes: no node has a number.
  void begin(std::int64_t num_nodes);

  /// Replaces each of ids[0, n) by its number; a new node gets the next number. Throws
  /// InvalidArgument for 2^31 or more numbers. Id: the same in the whole batch.
  template <class Id>
  void add(Id* ids, std::int64_t n) {
    const std::int64_t bound = std::min(size_ + n, num_nodes_);
    Id* nodes = nodes_.extend<Id>(size_, bound + 1);
    if (bound > kLargest - table_.base) {
      clear(bound);
      for (std::int64_t i = 0; i < size_; ++i) {
        table_.stamps[nodes[i]] = static_cast<std::int32_t>(table_.base + i);
      }
    }
    size_ = kernels::renumber<Id>(table_, ids, n, nodes, size_);
  }

  std::int64_t size() const { return size_; }
  /// The node of each number, [size()].
  template <class Id>
  const Id* nodes() const {
    return nodes_.data<Id>();
  }
  std::int64_t table_bytes() const { return stamps_.bytes(); }
  std::int64_t buffer_bytes() const { return nodes_.bytes(); }

  /// For tests: after the next begin(), `left` numbers remain until the table is cleared. Call it
  /// after the first batch.
  void set_left(std::int64_t left) {
    std::fill(table_.stamps, table_.stamps + table_nodes_, 0);
    table_.base = static_cast<std::int32_t>(kLargest - left - size_);
  }

 private:
  static constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  /// Forgets all numbers, for a batch of up to `needed` nodes.
  void clear(std::int64_t needed);

  kernels::StampTable table_;
  ScratchBuffer stamps_, nodes_;
  std::int64_t num_nodes_ = 0;    ///< of the graph
  std::int64_t table_nodes_ = 0;  ///< that fit the table
  std::int64_t size_ = 0;         ///< numbered nodes
};

/// The draws of a chunk of the rows of a hop, before the chunk's position is known.
struct ScannedRows {
  ScratchBuffer entries, neighbors, inverses, draws;
  std::int64_t begin = 0, count = 0;

  std::int64_t bytes() const {
    return entries.bytes() + neighbors.bytes() + inverses.bytes() + draws.bytes();
  }
};

/// The table that numbers the nodes of a batch on a GPU; see CudaRenumberArgs.
struct DeviceTable {
  at::Tensor first_at;    ///< int32 [nodes of the graph], on the GPU
  bool is_clean = false;  ///< no node has a number
};

}  // namespace detail

struct Workspace::State {
  detail::NodeNumbers numbers;
  detail::DeviceTable device_table;
  detail::ScratchBuffer begins, degrees;     ///< of the rows of one hop
  detail::ScratchBuffer draws;               ///< scratch of a row's draw
  detail::ScratchBuffer sorting, neighbors;  ///< for sorting and listing nodes
  std::vector<detail::ScannedRows> scanned;  ///< draws of unknown count

  std::int64_t buffer_bytes() const {
    std::int64_t bytes = numbers.buffer_bytes();
    for (const detail::ScratchBuffer* buffer : {&begins, &degrees, &draws, &sorting, &neighbors}) {
      bytes += buffer->bytes();
    }
    for (const detail::ScannedRows& part : scanned) bytes += part.bytes();
    return bytes;
  }
};

}  // namespace mezzo
