#include "mezzo/runtime/cuda_library.h"
#include "mezzo/sampling/blocks/block_loader.h"
#include "mezzo/sampling/blocks/block_sampler.h"

#include "support/tensors.h"

// CUDA sampling compared with CPU sampling, whatever the test device.
namespace mezzo::test {
namespace {

constexpr BatchKey kCudaKey{.seed = 9, .epoch = 2, .batch = 5};
constexpr at::DeviceType kGpu = at::kCUDA;

class CudaSampling : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "there is no CUDA device";
    if (cuda_kernels() == nullptr) GTEST_SKIP() << cuda_library_problem();
  }
};

testing::AssertionResult same_array(const at::Tensor& on_gpu, const at::Tensor& on_cpu) {
  if (!on_gpu.is_cuda()) return testing::AssertionFailure() << "not on the GPU";
  if (on_gpu.scalar_type() != on_cpu.scalar_type()) {
    return testing::AssertionFailure() << "another dtype";
  }
  if (!at::equal(on_gpu.to_dense().cpu(), on_cpu.to_dense())) {
    return testing::AssertionFailure() << "other values";
  }
  return testing::AssertionSuccess();
}

void compare(const Blocks& on_gpu, const Blocks& on_cpu) {
  ASSERT_EQ(on_gpu.size(), on_cpu.size());
  for (std::size_t i = 0; i < on_gpu.size(); ++i) {
    const Block &a = on_gpu[i], &b = on_cpu[i];
    EXPECT_TRUE(same_array(a.src_nodes(), b.src_nodes()));
    EXPECT_TRUE(same_array(a.dst_nodes(), b.dst_nodes()));
    EXPECT_TRUE(same_array(a.parent_edges(), b.parent_edges()));
    const Topology &there = a.topology(), &here = b.topology();
    EXPECT_TRUE(same_array(there.csc().indptr, here.csc().indptr));
    EXPECT_TRUE(same_array(there.csc().indices, here.csc().indices));
    EXPECT_TRUE(same_array(there.csr().indptr, here.csr().indptr));
    EXPECT_TRUE(same_array(there.csr().indices, here.csr().indices));
    EXPECT_TRUE(same_array(there.src(), here.src()));
    EXPECT_TRUE(same_array(there.dst(), here.dst()));
    EXPECT_EQ(there.parent_in_degrees() == nullptr, here.parent_in_degrees() == nullptr);
    if (here.parent_in_degrees() == nullptr) continue;
    EXPECT_TRUE(same_array(*there.parent_in_degrees(), *here.parent_in_degrees()));
    EXPECT_TRUE(same_array(*there.parent_out_degrees(), *here.parent_out_degrees()));
  }
}

Topology graph_on_cpu(std::int64_t num_nodes, std::int64_t num_edges, IdWidth width) {
  return random_topology(num_nodes, num_nodes, num_edges, 3, 3.0, width).to(at::kCPU);
}

at::Tensor every_seventh(std::int64_t count) {
  return at::arange(0, count * 7, 7, at::kLong);
}

TEST_F(CudaSampling, blocks_are_those_of_the_cpu) {
  Workspace workspace, own;
  for (const IdWidth width : {IdWidth::kInt32, IdWidth::kInt64}) {
    for (const std::int64_t num_edges : {0, 3000, 400000}) {
      const Topology here = graph_on_cpu(20000, num_edges, width), there = here.to(kGpu);
      for (const bool replace : {false, true}) {
        for (const std::vector<std::int64_t>& fanouts :
             std::vector<std::vector<std::int64_t>>{{15, 10, 5}, {8}, {100, 0, 30}, {700, 2}}) {
          SCOPED_TRACE(testing::Message() << num_edges << " edges, first fan-out " << fanouts[0]);
          const BlockSampler::Options options{
              .fanouts = fanouts, .replace = replace, .parent_degrees = true};
          const at::Tensor seeds = every_seventh(300);
          compare(BlockSampler(there, options).sample(seeds, kCudaKey, workspace),
                  BlockSampler(here, options).sample(seeds, kCudaKey, own));
          compare(
              BlockSampler(there, options).sample(seeds.to(kGpu, at::kInt), kCudaKey, workspace),
              BlockSampler(here, options).sample(seeds, kCudaKey, own));
        }
      }
      const BlockSampler::Options all{.fanouts = {kAllNeighbors, 5}};
      compare(BlockSampler(there, all).sample(every_seventh(20), kCudaKey, workspace),
              BlockSampler(here, all).sample(every_seventh(20), kCudaKey, own));
    }
  }
}

TEST_F(CudaSampling, neighbours_along_and_against_the_edges_are_those_of_the_cpu) {
  Workspace workspace;
  const Topology here = graph_on_cpu(2000, 60000, IdWidth::kInt32), there = here.to(kGpu);
  const at::Tensor nodes = at::tensor({5, 1999, 5, 0, 77}, at::kLong);
  for (const NeighborType type : {NeighborType::kIn, NeighborType::kOut}) {
    const DrawOptions options{.fanout = 12, .type = type};
    const DrawnNeighbors
        a = NeighborSource(there, type).draw(nodes.to(kGpu), options, kCudaKey, 3, workspace),
        b = NeighborSource(here, type).draw(nodes, options, kCudaKey, 3, workspace);
    EXPECT_TRUE(same_array(a.offsets, b.offsets));
    EXPECT_TRUE(same_array(a.neighbors, b.neighbors));
    EXPECT_TRUE(same_array(a.edges, b.edges));
    EXPECT_FALSE(a.weights.defined());
  }
}

TEST_F(CudaSampling, a_loader_gives_the_batches_of_a_graph_on_the_cpu) {
  Graph here(graph_on_cpu(3000, 50000, IdWidth::kInt32));
  const at::Tensor dense = at::arange(3000 * 5, at::kFloat).reshape({3000, 5});
  here.ndata()["dense"] = dense.to(at::kBFloat16);
  here.ndata()["sparse"] = dense.remainder(3).eq(0).to(at::kFloat).to_sparse_csr();
  here.ndata()["label"] = at::arange(3000, at::kLong).remainder(4);
  const Graph there = here.to(kGpu);
  const at::Tensor seeds = every_seventh(400);
  for (const bool balanced : {false, true}) {
    const BlockLoaderOptions options{.fanouts = {6, 40},
                                     .batch_size = 128,
                                     .shuffle = true,
                                     .features = {"dense", "sparse"},
                                     .labels = {"label"},
                                     .device = kGpu,
                                     .balance_by = balanced ? "label" : ""};
    BlockLoaderOptions on_cpu = options;
    on_cpu.device = at::kCPU;
    BlockLoader a(there, seeds.to(kGpu), options), b(here, seeds, on_cpu);
    auto expected = b.begin();
    for (const Batch& batch : a) {
      compare(batch.blocks, expected->blocks);
      EXPECT_TRUE(same_array(batch.input_nodes, expected->input_nodes));
      EXPECT_TRUE(same_array(batch.output_nodes, expected->output_nodes));
      EXPECT_EQ(batch.output_counts.defined(), expected->output_counts.defined());
      for (const char* name : {"dense", "sparse"}) {
        EXPECT_TRUE(same_array(batch.features(name), expected->features(name))) << name;
      }
      EXPECT_TRUE(same_array(batch.labels("label"), expected->labels("label")));
      ++expected;
    }
    EXPECT_TRUE(expected == b.end());
  }
}

TEST_F(CudaSampling, seeds_that_are_there_twice_leave_the_workspace_usable) {
  const Topology here = graph_on_cpu(300, 3000, IdWidth::kInt32);
  const BlockSampler sampler(here.to(kGpu), {.fanouts = {3, 3}});
  Workspace workspace, own;
  EXPECT_THROW(sampler.sample(at::tensor({4, 5, 4}, at::kLong), kCudaKey, workspace),
               InvalidArgument);
  const at::Tensor seeds = at::tensor({5, 4}, at::kLong);
  compare(sampler.sample(seeds, kCudaKey, workspace),
          BlockSampler(here, {.fanouts = {3, 3}}).sample(seeds, kCudaKey, own));
}

TEST_F(CudaSampling, what_only_the_cpu_has_is_an_error) {
  const Topology there = graph_on_cpu(30, 200, IdWidth::kInt32).to(kGpu);
  EXPECT_THROW(BlockSampler(there, {.fanouts = {2}, .draw = NeighborDraw::kLabor}),
               InvalidArgument);
  EXPECT_THROW(BlockSampler(there, {.fanouts = {2}, .edge_weights = at::ones({200})}),
               InvalidArgument);
  EXPECT_THROW(BlockSampler(there, {.fanouts = {2}, .node_ids = at::arange(30, at::kLong)}),
               InvalidArgument);
  EXPECT_THROW(BlockLoader(Graph(there), every_seventh(3), {.fanouts = {2}, .device = at::kCPU}),
               InvalidArgument);
  EXPECT_THROW(BlockLoader(Graph(there), every_seventh(3),
                           {.fanouts = {2}, .device = kGpu, .num_workers = 1}),
               InvalidArgument);
}

}  // namespace
}  // namespace mezzo::test
