#include "mezzo/dist/rendezvous/local_address.h"

#include "mezzo/core/error.h"

#include "dist/processes.h"

namespace mezzo {
namespace {

using dist::detail::find_local_address;
using dist::detail::find_route;
using dist::detail::Route;

/// Reserved for documentation by RFC 5737.
constexpr auto kNobodys = "192.0.2.1";
constexpr auto kLoopback = "127.0.1.1";

/// This machine's network address; empty if none. Sends nothing.
std::string own_network_address() {
  try {
    return find_route(kNobodys).source;
  } catch (const IoError&) {
    return {};
  }
}

TEST(LocalAddress, the_way_to_the_loopback_begins_there) {
  const Route route = find_route("127.0.0.1");
  EXPECT_EQ(route.source, "127.0.0.1");
  EXPECT_EQ(route.target, "127.0.0.1");
}

TEST(LocalAddress, a_name_that_nobody_has_is_named) {
  try {
    find_route("no-such-host.invalid");
    FAIL() << "no error";
  } catch (const IoError& error) {
    EXPECT_TRUE(test::has(error.what(), "'no-such-host.invalid'")) << error.what();
  }
}

TEST(LocalAddress, neighbours_on_one_host_stay_on_the_loopback) {
  EXPECT_EQ(find_local_address(kLoopback, {}), kLoopback);
}

TEST(LocalAddress, the_way_to_rank_0_says_it_where_it_leaves_the_machine) {
  EXPECT_EQ(find_local_address(kNobodys, {"192.0.2.7"}), kNobodys);
}

TEST(LocalAddress, rank_0_that_is_on_its_own_loopback_is_where_the_others_find_it) {
  const std::string own = own_network_address();
  if (own.empty()) GTEST_SKIP() << "no network";
  EXPECT_EQ(find_local_address(kLoopback, {"127.0.0.1", kNobodys, own}), own);
}

TEST(LocalAddress, an_address_of_somebody_else_is_never_taken) {
  const std::string address = find_local_address(kLoopback, {"127.0.0.1", kNobodys});
  EXPECT_NE(address, kNobodys);
  EXPECT_NE(address, "127.0.0.1");
  EXPECT_NE(address, kLoopback);
}

}  // namespace
}  // namespace mezzo
