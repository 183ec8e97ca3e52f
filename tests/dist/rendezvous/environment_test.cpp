#include "mezzo/dist/rendezvous/environment.h"

#include <map>

#include "mezzo/core/error.h"

#include "dist/processes.h"

namespace mezzo::test {
namespace {

using Table = std::map<std::string, std::string>;

/// A replacement for std::getenv.
dist::Lookup reader_of(const Table& variables) {
  return [&variables](const char* name) -> const char* {
    const auto entry = variables.find(name);
    return entry == variables.end() ? nullptr : entry->second.c_str();
  };
}

dist::Placement place(const Table& variables, const dist::InitOptions& options = {}) {
  return dist::find_placement(options, reader_of(variables));
}

void expect_ranks(const dist::Placement& placement, std::int64_t rank, std::int64_t world_size,
                  std::int64_t local_rank) {
  EXPECT_EQ(placement.rank, rank);
  EXPECT_EQ(placement.world_size, world_size);
  EXPECT_EQ(placement.local_rank, local_rank);
}

/// Returns the message of the InvalidArgument.
std::string refusal(const Table& variables, const dist::InitOptions& options = {}) {
  try {
    place(variables, options);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

const Table kOfTorchrun = {{"RANK", "5"},
                           {"WORLD_SIZE", "8"},
                           {"LOCAL_RANK", "1"},
                           {"MASTER_ADDR", "10.0.0.7"},
                           {"MASTER_PORT", "29400"}};

const Table kOfSlurm = {{"SLURM_PROCID", "2"},
                        {"SLURM_NTASKS", "4"},
                        {"SLURM_LOCALID", "0"},
                        {"SLURM_JOB_ID", "20007"},
                        {"SLURM_JOB_NODELIST", "node[01-03,7],gpu5"}};

const Table kOfOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};

Table with(Table table, const std::string& name, const std::string& value) {
  table[name] = value;
  return table;
}

Table with_head(const Table& table) {
  return with(with(table, "MASTER_ADDR", "head"), "MASTER_PORT", "5000");
}

Table without(Table table, const std::string& name) {
  table.erase(name);
  return table;
}

TEST(Environment, nothing_set_is_one_process) {
  const dist::Placement placement = place({});
  expect_ranks(placement, 0, 1, 0);
  EXPECT_FALSE(placement.hosts_store);
}

TEST(Environment, collectives_are_checked_where_torch_would) {
  const auto checks = [](const Table& variables, const dist::InitOptions& options = {}) {
    return dist::checks_collectives(options, reader_of(variables));
  };
  const std::string name = "TORCH_DISTRIBUTED_DEBUG";
  EXPECT_FALSE(checks({}));
  EXPECT_FALSE(checks({{name, ""}}));
  EXPECT_FALSE(checks({{name, "OFF"}}));
  EXPECT_FALSE(checks({{name, "INFO"}}));
  EXPECT_TRUE(checks({{name, "DETAIL"}}));
  EXPECT_TRUE(checks({{name, "detail"}}));
  EXPECT_TRUE(checks({}, {.check_collectives = true}));
  EXPECT_FALSE(checks({{name, "DETAIL"}}, {.check_collectives = false}));
  EXPECT_THROW(checks({{name, "yes"}}), InvalidArgument);
}

TEST(Environment, one_process_needs_no_address) {
  EXPECT_EQ(place({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}}).world_size, 1);
}

TEST(Environment, variables_of_torchrun_are_read) {
  const dist::Placement placement = place(kOfTorchrun);
  expect_ranks(placement, 5, 8, 1);
  EXPECT_EQ(placement.address, "10.0.0.7");
  EXPECT_EQ(placement.port, 29400);
  EXPECT_FALSE(placement.hosts_store);
  EXPECT_EQ(placement.attempt, "0");
}

TEST(Environment, rank_0_opens_the_port_unless_the_agent_has) {
  const Table first = with(kOfTorchrun, "RANK", "0");
  EXPECT_TRUE(place(first).hosts_store);
  const Table agent = with(first, "TORCHELASTIC_USE_AGENT_STORE", "True");
  EXPECT_FALSE(place(agent).hosts_store);
  EXPECT_TRUE(place(with(first, "TORCHELASTIC_USE_AGENT_STORE", "False")).hosts_store);
  // An explicit address is not that of torchrun's agent.
  EXPECT_TRUE(place(agent, {.address = "127.0.0.1", .port = 4000}).hosts_store);
}

TEST(Environment, restarts_of_torchrun_have_numbers) {
  EXPECT_EQ(place(with(kOfTorchrun, "TORCHELASTIC_RESTART_COUNT", "3")).attempt, "3");
}

TEST(Environment, variables_of_slurm_are_read) {
  const dist::Placement placement = place(kOfSlurm);
  expect_ranks(placement, 2, 4, 0);
  EXPECT_EQ(placement.address, "node01");
  EXPECT_EQ(placement.port, 12007);
  const Table step = with(kOfSlurm, "SLURM_STEP_NODELIST", "gpu[5-6]");
  EXPECT_EQ(place(step).address, "gpu5");
  const Table explicit_address = with_head(kOfSlurm);
  EXPECT_EQ(place(explicit_address).address, "head");
  EXPECT_EQ(place(explicit_address).port, 5000);
}

TEST(Environment, variables_of_open_mpi_need_an_address) {
  EXPECT_TRUE(has(refusal(kOfOpenMpi), "MASTER_ADDR"));
  EXPECT_TRUE(has(refusal(with(kOfOpenMpi, "MASTER_ADDR", "head")), "MASTER_PORT"));
  expect_ranks(place(with_head(kOfOpenMpi)), 1, 2, 1);
}

TEST(Environment, steps_of_a_slurm_job_meet_at_ports_of_their_own) {
  EXPECT_EQ(place(with(kOfSlurm, "SLURM_STEP_ID", "0")).port, 12007);
  EXPECT_EQ(place(with(kOfSlurm, "SLURM_STEP_ID", "1")).port, 19926);
  const Table largest = with(with(kOfSlurm, "SLURM_STEP_ID", "9223372036854775807"), "SLURM_JOB_ID",
                             "9223372036854775807");
  EXPECT_GE(place(largest).port, 12000);
  EXPECT_LT(place(largest).port, 32000);
}

TEST(Environment, torchrun_comes_before_slurm) {
  Table both = kOfSlurm;
  both.insert(kOfTorchrun.begin(), kOfTorchrun.end());
  EXPECT_EQ(place(both).rank, 5);
  EXPECT_EQ(place(both).address, "10.0.0.7");
}

TEST(Environment, open_mpi_in_a_batch_script_comes_before_slurm) {
  Table both = with_head(kOfSlurm);
  both.insert(kOfOpenMpi.begin(), kOfOpenMpi.end());
  expect_ranks(place(both), 1, 2, 1);
  both.insert(kOfTorchrun.begin(), kOfTorchrun.end());
  EXPECT_EQ(place(both).rank, 5);
}

TEST(Environment, options_come_before_variables) {
  const dist::Placement placement =
      place(kOfTorchrun,
            {.rank = 0, .world_size = 2, .local_rank = 1, .address = "127.0.0.1", .port = 4000});
  expect_ranks(placement, 0, 2, 1);
  EXPECT_EQ(placement.address, "127.0.0.1");
  EXPECT_EQ(placement.port, 4000);
}

TEST(Environment, missing_and_empty_variables_have_their_defaults) {
  EXPECT_EQ(place(without(kOfTorchrun, "LOCAL_RANK")).local_rank, -1);
  EXPECT_EQ(place({{"RANK", ""}, {"WORLD_SIZE", ""}}).world_size, 1);
}

TEST(Environment, bad_numbers_are_named_with_their_text) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"}) {
    for (const char* text : {"x", "-1", "1.5", "3 ", "99999999999999999999"}) {
      const std::string message = refusal(with(kOfTorchrun, name, text));
      EXPECT_TRUE(has(message, name)) << message;
      EXPECT_TRUE(has(message, "'" + std::string(text) + "'")) << message;
    }
  }
  EXPECT_TRUE(has(refusal(with(kOfTorchrun, "MASTER_PORT", "65536")), "65536"));
  EXPECT_TRUE(has(refusal(with(kOfTorchrun, "MASTER_PORT", "0")), "'0'"));
  EXPECT_TRUE(has(refusal(with(kOfTorchrun, "WORLD_SIZE", "0")), "WORLD_SIZE"));
}

TEST(Environment, missing_and_contradictory_settings_are_named) {
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_TRUE(has(refusal(without(kOfTorchrun, name)), name));
  }
  EXPECT_TRUE(has(refusal(with(kOfTorchrun, "RANK", "8")), "rank 8"));
  EXPECT_TRUE(has(refusal(with(kOfTorchrun, "LOCAL_RANK", "8")), "local rank 8"));
  EXPECT_TRUE(has(refusal({}, {.rank = 1}), "world_size"));
  EXPECT_TRUE(has(refusal({}, {.world_size = 2}), "InitOptions::rank"));
  EXPECT_TRUE(has(refusal({}, {.rank = 0, .world_size = 0}), "world_size of at least 1, got 0"));
  EXPECT_TRUE(
      has(refusal({}, {.rank = 0, .world_size = 2, .address = "a", .port = 70000}), "70000"));
}

TEST(Environment, lists_of_slurm_give_their_first_host) {
  EXPECT_EQ(dist::first_host("node1"), "node1");
  EXPECT_EQ(dist::first_host("node1,node2"), "node1");
  EXPECT_EQ(dist::first_host("node[01-03,7],gpu5"), "node01");
  EXPECT_EQ(dist::first_host("gpu5,node[01-03]"), "gpu5");
  EXPECT_EQ(dist::first_host("node[7]"), "node7");
  EXPECT_EQ(dist::first_host("node[3,5-9]"), "node3");
  EXPECT_EQ(dist::first_host("rack[1-2]node[0-7]"), "rack1node0");
  EXPECT_EQ(dist::first_host("node[1-2]-ib,other"), "node1-ib");
}

TEST(Environment, lists_that_cannot_be_read_are_refused) {
  for (const char* list : {"", ",node1", "node[", "node[]", "node[1-3", "node[1,2"}) {
    EXPECT_THROW(dist::first_host(list), InvalidArgument) << list;
  }
}

}  // namespace
}  // namespace mezzo::test
