#include "mezzo/sampling/blocks/device_sampling.h"

#include "mezzo/kernels/cuda/kernels.h"
#include "mezzo/sampling/blocks/block_sampler.h"
#include "mezzo/sampling/draw_stream.h"
#include "mezzo/sampling/workspace_state.h"

#include "support/tensors.h"

// GPU sampling with emulated kernels in CPU memory (see support/cuda_emulator), compared with CPU
// sampling.
namespace mezzo::test {
namespace {

using detail::HopDraw;
using detail::SampledBatch;

constexpr detail::SamplingKernels kEmulated = {
    .draw =
        [](const kernels::CudaDrawArgs& args, at::Device /*device*/, std::int64_t num_entries) {
          kernels::cuda::Kernel<kernels::CudaDrawArgs>::run(args, {.num_entries = num_entries});
        },
    .renumber =
        [](const kernels::CudaRenumberArgs& args, at::Device /*device*/, std::int64_t num_entries) {
          kernels::cuda::Kernel<kernels::CudaRenumberArgs>::run(args, {.num_entries = num_entries});
        }};

constexpr BatchKey kDeviceKey{.seed = 9, .epoch = 2, .batch = 5};

std::vector<HopDraw> hops_of(const std::vector<std::int64_t>& fanouts, bool replace) {
  std::vector<HopDraw> hops;
  for (std::size_t i = fanouts.size(); i-- > 0;) {
    const std::int64_t fanout = fanouts[i];
    const auto hop = static_cast<std::int64_t>(hops.size());
    hops.push_back(
        {.count = {fanout == kAllNeighbors ? std::numeric_limits<std::int64_t>::max() : fanout,
                   replace},
         .key = {kDeviceKey.seed,
                 detail::draw_stream(kDeviceKey, detail::DrawPurpose::kNeighbors, hop)}});
  }
  return hops;
}

void compare(const Topology& topology, const std::vector<std::int64_t>& fanouts, bool replace,
             const at::Tensor& seeds, Workspace& workspace) {
  const Adjacency& rows = topology.csc();
  const SampledBatch batch =
      detail::sample_on_device(kEmulated, rows, seeds, hops_of(fanouts, replace), workspace);
  Workspace own;
  const Blocks blocks =
      BlockSampler(topology, {.fanouts = fanouts, .replace = replace, .parent_degrees = true})
          .sample(seeds, kDeviceKey, own);
  ASSERT_EQ(batch.layers.size(), blocks.size());
  EXPECT_EQ(batch.nodes.scalar_type(), topology.id_dtype());
  EXPECT_TRUE(at::equal(batch.nodes.to(at::kLong), blocks[0].src_nodes()));
  EXPECT_TRUE(
      at::equal(batch.row_lengths, blocks[0].topology().parent_in_degrees()->to(at::kLong)));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const detail::SampledLayer& layer = batch.layers[blocks.size() - 1 - i];
    const Adjacency& expected = blocks[i].topology().csc();
    EXPECT_EQ(layer.num_dst, blocks[i].num_dst());
    EXPECT_EQ(layer.num_src, blocks[i].num_src());
    EXPECT_TRUE(at::equal(layer.drawn.offsets, expected.indptr));
    EXPECT_TRUE(at::equal(layer.drawn.neighbors, expected.indices));
    const at::Tensor edges = rows.edge_ids.defined()
                                 ? rows.edge_ids.index_select(0, layer.drawn.entries)
                                 : layer.drawn.entries;
    EXPECT_TRUE(at::equal(edges.to(at::kLong), blocks[i].parent_edges()));
  }
}

TEST(DeviceSampling, hops_are_those_of_the_cpu) {
  MEZZO_CPU_ONLY("emulated kernels");
  Workspace workspace;  // one for all batches, as in a thread
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    for (const std::int64_t num_edges : {0, 300, 9000}) {
      const Topology topology = random_topology(400, 400, num_edges, 3, 3.0, width);
      for (const bool replace : {false, true}) {
        SCOPED_TRACE(testing::Message() << num_edges << " edges, replace " << replace);
        compare(topology, {5, 3, 2}, replace, ids({7, 0, 399, 41}), workspace);
        compare(topology, {12}, replace, ids({1}).to(at::kInt), workspace);
        compare(topology, {40, 0, 20}, replace, ids({350, 2}), workspace);
        compare(topology, {3}, replace, ids({}), workspace);
      }
      compare(topology, {kAllNeighbors, 4}, false, ids({7, 0, 399, 41}), workspace);
    }
  }
}

TEST(DeviceSampling, seeds_that_are_there_twice_are_named_and_leave_no_numbers) {
  MEZZO_CPU_ONLY("emulated kernels");
  const Topology topology = random_topology(400, 400, 3000, 3, 3.0, IdWidth::kInt32);
  Workspace workspace;
  try {
    static_cast<void>(detail::sample_on_device(kEmulated, topology.csc(), ids({5, 8, 9, 8, 5}),
                                               hops_of({2}, false), workspace));
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "sample: expected distinct seeds, got 8 more than once");
  }
  compare(topology, {4, 4}, false, ids({9, 5, 8}), workspace);
  EXPECT_EQ(workspace.table_bytes(), 400 * 4);
}

}  // namespace
}  // namespace mezzo::test
