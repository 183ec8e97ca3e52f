#include "mezzo/dist/rendezvous/environment.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "mezzo/core/error.h"

#include "dist/processes.h"

namespace mezzo {
namespace {

using test::has;

using Table = std::map<std::string, std::string>;

dist::Placement place(const Table& variables, const dist::InitOptions& options = {}) {
  return dist::find_placement(options, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
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

Table without(Table table, const std::string& name) {
  table.erase(name);
  return table;
}

TEST(Environment, nothing_set_is_one_process) {
  const dist::Placement found = place({});
  EXPECT_EQ(found.rank, 0);
  EXPECT_EQ(found.world_size, 1);
  EXPECT_EQ(found.local_rank, 0);
  EXPECT_FALSE(found.hosts_store);
}

TEST(Environment, collectives_are_checked_where_torch_would) {
  const auto checks = [](const Table& variables, const dist::InitOptions& options = {}) {
    return dist::checks_collectives(options, [&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
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
  const dist::Placement found = place({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  EXPECT_EQ(found.world_size, 1);
}

TEST(Environment, variables_of_torchrun_are_read) {
  const dist::Placement found = place(kOfTorchrun);
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.world_size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.address, "10.0.0.7");
  EXPECT_EQ(found.port, 29400);
  EXPECT_FALSE(found.hosts_store);
  EXPECT_EQ(found.attempt, "0");
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

TEST(Environment, restarts_of_torchrun_are_told_apart) {
  EXPECT_EQ(place(with(kOfTorchrun, "TORCHELASTIC_RESTART_COUNT", "3")).attempt, "3");
}

TEST(Environment, variables_of_slurm_are_read) {
  const dist::Placement found = place(kOfSlurm);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.world_size, 4);
  EXPECT_EQ(found.local_rank, 0);
  EXPECT_EQ(found.address, "node01");
  EXPECT_EQ(found.port, 12007);
  const Table step = with(kOfSlurm, "SLURM_STEP_NODELIST", "gpu[5-6]");
  EXPECT_EQ(place(step).address, "gpu5");
  const Table told = with(with(kOfSlurm, "MASTER_ADDR", "head"), "MASTER_PORT", "5000");
  EXPECT_EQ(place(told).address, "head");
  EXPECT_EQ(place(told).port, 5000);
}

TEST(Environment, variables_of_open_mpi_need_an_address) {
  EXPECT_TRUE(has(refusal(kOfOpenMpi), "MASTER_ADDR"));
  EXPECT_TRUE(has(refusal(with(kOfOpenMpi, "MASTER_ADDR", "head")), "MASTER_PORT"));
  const dist::Placement found =
      place(with(with(kOfOpenMpi, "MASTER_ADDR", "head"), "MASTER_PORT", "5000"));
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.world_size, 2);
  EXPECT_EQ(found.local_rank, 1);
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
  Table both = with(with(kOfSlurm, "MASTER_ADDR", "head"), "MASTER_PORT", "5000");
  both.insert(kOfOpenMpi.begin(), kOfOpenMpi.end());
  const dist::Placement found = place(both);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.world_size, 2);
  EXPECT_EQ(found.local_rank, 1);
  both.insert(kOfTorchrun.begin(), kOfTorchrun.end());
  EXPECT_EQ(place(both).rank, 5);
}

TEST(Environment, options_come_before_variables) {
  const dist::Placement found =
      place(kOfTorchrun,
            {.rank = 0, .world_size = 2, .local_rank = 1, .address = "127.0.0.1", .port = 4000});
  EXPECT_EQ(found.rank, 0);
  EXPECT_EQ(found.world_size, 2);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.address, "127.0.0.1");
  EXPECT_EQ(found.port, 4000);
}

TEST(Environment, a_local_rank_that_nobody_gives_is_left_open) {
  EXPECT_EQ(place(without(kOfTorchrun, "LOCAL_RANK")).local_rank, -1);
}

TEST(Environment, a_variable_set_to_nothing_is_not_set) {
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
  EXPECT_TRUE(has(refusal(without(kOfTorchrun, "RANK")), "RANK"));
  EXPECT_TRUE(has(refusal(without(kOfTorchrun, "WORLD_SIZE")), "WORLD_SIZE"));
  EXPECT_TRUE(has(refusal(without(kOfTorchrun, "MASTER_ADDR")), "MASTER_ADDR"));
  EXPECT_TRUE(has(refusal(without(kOfTorchrun, "MASTER_PORT")), "MASTER_PORT"));
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
}  // namespace mezzo
