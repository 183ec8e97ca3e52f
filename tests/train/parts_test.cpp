#include "mezzo/data/parts.h"

#include "mezzo/train/problem.h"
#include "mezzo/train/trainer.h"

#include "support/npy_writer.h"
#include "support/tensors.h"
#include "train/mini_batches.h"

/// Training on a part of a data set.
namespace mezzo {
namespace {

/// Part 0 of two_rings(), half of each ring; the border nodes 5 and 23 also have a self loop.
class Parts : public testing::Test {
 protected:
  Parts() : whole_(test::two_rings()) {
    const at::Tensor looped = test::ids({5, 23});
    whole_.src = at::cat({whole_.src, looped});
    whole_.dst = at::cat({whole_.dst, looped});
    const at::Tensor halves = at::arange(whole_.num_nodes).ge(whole_.num_nodes / 2).to(at::kLong);
    write_parts(whole_, halves, folder_.path("parts"), {.hops = 2});
    part_ = load_dataset(folder_.path("parts/part0"));
  }

  test::TempFolder folder_;
  Dataset whole_, part_;
};

TEST_F(Parts, degrees_are_those_of_the_whole_with_and_without_loops) {
  for (const bool self_loops : {false, true}) {
    TrainOptions options = test::sampled_options(SamplerKind::kNeighbor);
    options.self_loops = self_loops;
    const Problem whole = make_problem(whole_, options);
    const Problem part = make_problem(part_, options);
    ASSERT_NE(part.topology.parent_in_degrees(), nullptr);
    const at::Tensor& node_ids = part.node_ids;
    EXPECT_TRUE(at::equal(*part.topology.parent_in_degrees(),
                          whole.topology.in_degrees().index_select(0, node_ids)));
    EXPECT_TRUE(at::equal(*part.topology.parent_out_degrees(),
                          whole.topology.out_degrees().index_select(0, node_ids)));
  }
}

TEST_F(Parts, one_process_learns_from_its_own_nodes) {
  const TrainOptions options = test::sampled_options(SamplerKind::kNeighbor);
  const TrainReport report = train(part_, options);
  EXPECT_EQ(report.epochs_run, options.epochs);
  // 12 of the 20 training nodes, in batches of 8.
  EXPECT_EQ(report.steps, 2 * options.epochs);
}

TEST_F(Parts, halos_that_are_too_small_and_other_samplers_are_refused) {
  TrainOptions deep = test::sampled_options(SamplerKind::kNeighbor);
  deep.layers = 3;
  deep.sampling->fanouts = {2, 2, 2};
  EXPECT_THROWS(InvalidArgument, test::fragments("2 hops", "3 layers", "--hops 3"),
                train(part_, deep));
  const TrainOptions cluster = test::sampled_options(SamplerKind::kCluster);
  EXPECT_THROWS(InvalidArgument, "sampler neighbor, labor or layer", train(part_, cluster));
  EXPECT_THROWS(InvalidArgument, "sampler neighbor, labor or layer",
                train(part_, test::quick_options()));
}

}  // namespace
}  // namespace mezzo
