#include "cli/serve.h"

#include <chrono>
#include <span>

#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include "mezzo/cli/serve/rate_limit.h"
#include "mezzo/cli/serve/request_handler.h"
#include "mezzo/cli/serve/server.h"
#include "mezzo/train/predictions.h"

#include "cli/command.h"
#include "support/tolerance.h"
#include "train/link_data.h"
#include "train/targets.h"

namespace mezzo {
namespace {

using cli::RequestHandler;
using nlohmann::json;
using test::TempFolder;
using test::Trained;
using test::trained_rings;

json ask(RequestHandler& handler, const std::string& request) {
  const std::string answer = handler.answer(request);
  EXPECT_EQ(answer.find('\n'), std::string::npos);
  return json::parse(answer);
}

/// Expects the classes and the probabilities of these logits, to the bit.
void expect_answer(const json& answer, const at::Tensor& logits) {
  const Predictions expected = mezzo::detail::predictions_of(logits, LabelKind::kClass);
  ASSERT_TRUE(answer.contains("classes")) << answer;
  const at::Tensor classes = at::tensor(answer["classes"].get<std::vector<std::int64_t>>());
  const at::Tensor numbers = at::tensor(answer["probabilities"].get<std::vector<float>>());
  EXPECT_TRUE(classes.equal(expected.classes)) << answer;
  EXPECT_TRUE(test::same_bits(numbers, expected.probabilities)) << answer;
}

/// A request that cannot be answered, and parts of its error.
struct BadRequest {
  std::string request;
  std::vector<std::string> parts;
};

void expect_errors(RequestHandler& handler, std::span<const BadRequest> cases) {
  for (const auto& [request, parts] : cases) {
    SCOPED_TRACE(request.substr(0, 80));
    const json answer = ask(handler, request);
    ASSERT_TRUE(answer.contains("error")) << answer;
    EXPECT_TRUE(test::mentions(answer["error"].get<std::string>(), parts));
  }
}

TEST(Serve, answers_as_the_predictor) {
  RequestHandler handler = trained_rings().handler();
  Predictor expected = trained_rings().predictor();
  expect_answer(ask(handler, R"({"nodes": [3, 0, 39, 3]})"),
                expected.predict(at::tensor({3, 0, 39, 3})));
  expect_answer(ask(handler, R"({"nodes": [3], "fanouts": [1, 1], "seed": 18446744073709551615})"),
                expected.predict(at::tensor({3}), {.fanouts = {1, 1}, .seed = ~std::uint64_t{0}}));
  expect_answer(ask(handler, R"({"nodes": [3], "fanouts": [-1, -1]})"),
                expected.predict(at::tensor({3})));
  EXPECT_EQ(ask(handler, R"({"nodes": []})"),
            json::parse(R"({"classes": [], "probabilities": []})"));
}

TEST(Serve, follows_a_graph_that_changes) {
  RequestHandler handler = trained_rings().handler();
  Predictor expected = trained_rings().predictor();
  const auto expect_same = [&] {
    expect_answer(ask(handler, R"({"nodes": [0, 1, 2, 3, 4, 5, 6, 7]})"),
                  expected.predict(at::arange(8)));
  };
  const auto sizes = [&] {
    return json{{"nodes", expected.num_nodes()}, {"edges", expected.num_edges()}};
  };
  json answer = ask(handler, R"({"add_nodes": [[1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0.5, 1e-3]]})");
  expected.add_nodes(
      at::tensor({1.F, 2.F, 3.F, 4.F, 5.F, 6.F, 0.F, 0.F, 0.F, 0.F, 0.5F, 1e-3F}).view({2, 6}));
  EXPECT_EQ(answer["first"], 40);
  answer.erase("first");
  EXPECT_EQ(answer, sizes());
  answer = ask(handler, R"({"add_edges": [[40, 3], [41, 7], [1, 0]]})");
  expected.add_edges(at::tensor({40, 41, 1}), at::tensor({3, 7, 0}));
  EXPECT_EQ(answer, sizes());
  expect_same();
  answer = ask(handler, R"({"remove_edges": [[1, 0]]})");
  expected.remove_edges(at::tensor({1}), at::tensor({0}));
  EXPECT_EQ(answer, sizes());
  expect_same();
  answer = ask(handler, R"({"set_features": {"nodes": [5], "features": [[6, 5, 4, 3, 2, 1]]}})");
  expected.set_features(at::tensor({5}), at::tensor({6.F, 5.F, 4.F, 3.F, 2.F, 1.F}).view({1, 6}));
  EXPECT_EQ(answer, sizes());
  expect_same();
  for (const char* nothing : {R"({"add_edges": []})", R"({"remove_edges": []})",
                              R"({"set_features": {"nodes": [], "features": []}})"}) {
    EXPECT_EQ(ask(handler, nothing), sizes());
  }
  expect_same();
}

TEST(Serve, takes_weights_of_edges) {
  Dataset data = test::two_rings();
  data.edge_weights = at::rand({data.num_edges()}) + 0.5;
  const Trained weighted(data);
  RequestHandler handler = weighted.handler();
  Predictor expected = weighted.predictor();
  EXPECT_TRUE(ask(handler, R"({"add_edges": [[1, 0]]})").contains("error"));
  EXPECT_FALSE(ask(handler, R"({"add_edges": [[1, 0]], "rows": [0.25]})").contains("error"));
  expected.add_edges(at::tensor({1}), at::tensor({0}), at::tensor({0.25F}));
  expect_answer(ask(handler, R"({"nodes": [0]})"), expected.predict(at::tensor({0})));
}

TEST(Serve, answers_numbers_and_several_labels) {
  const Trained numbers(test::rings_of_numbers());
  RequestHandler of_numbers = numbers.handler();
  const json answer = ask(of_numbers, R"({"nodes": [3, 7]})")["numbers"];
  const at::Tensor expected = numbers.predictor().predict(at::tensor({3, 7}));
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t c = 0; c < 2; ++c) {
      EXPECT_EQ(answer.at(static_cast<std::size_t>(i)).at(static_cast<std::size_t>(c)).get<float>(),
                expected[i][c].item<float>());
    }
  }

  const Trained several(test::rings_of_several_labels());
  RequestHandler of_several = several.handler();
  const json labels = ask(of_several, R"({"nodes": [3]})");
  const Predictions one = mezzo::detail::predictions_of(
      several.predictor().predict(at::tensor({3})), LabelKind::kMultiLabel);
  for (std::int64_t c = 0; c < 3; ++c) {
    const auto column = static_cast<std::size_t>(c);
    EXPECT_EQ(labels["classes"][0][column].get<int>(), one.classes[0][c].item<int>());
    EXPECT_EQ(labels["probabilities"][0][column].get<float>(),
              one.probabilities[0][c].item<float>());
  }
}

TEST(Serve, answers_pairs_of_nodes) {
  const Trained edges(test::edges_with_labels(LabelKind::kClass));
  RequestHandler of_edges = edges.handler();
  Predictor expected = edges.predictor();
  const std::string request = R"({"edges": [[0, 5], [7, 7]], "rows": [[1], [0.5]]})";
  const auto expect_same = [&] {
    expect_answer(ask(of_edges, request),
                  expected.predict_edges(at::tensor({0, 7}), at::tensor({5, 7}),
                                         at::tensor({1.F, 0.5F}).view({2, 1})));
  };
  expect_same();
  EXPECT_FALSE(ask(of_edges, R"({"add_edges": [[3, 5]]})").contains("error"));
  expected.add_edges(at::tensor({3}), at::tensor({5}));
  expect_same();
  const BadRequest bad_edges[] = {
      {R"({"edges": [[0, 5]]})", {"rows", "[1, 1]"}},
      {R"({"edges": [[0, 5]], "rows": [1]})", {"rows", "[1, 1]"}},
      {R"({"edges": [[0, 5]], "rows": [[1, 2]]})", {"rows", "[1, 1]"}},
      {R"({"edges": [[0, 5]], "rows": [[1e300]]})", {"rows", "finite"}},
      {R"({"edges": [[0, 60]], "rows": [[1]]})", {"dst", "60"}},
      {R"({"edges": [[0, 5, 1]], "rows": [[1]]})", {"edges", "pairs"}},
      {R"({"edges": [[0, 5]], "columns": 1})", {"columns", "rows"}},
      {R"({"nodes": [1]})", {"nodes", "edges"}},
  };
  expect_errors(of_edges, bad_edges);

  const Trained links(test::links_within_groups(/*with_types=*/true), nn::Decoder::kDistMult);
  RequestHandler of_links = links.handler();
  const Predictions both = mezzo::detail::predictions_of(
      links.predictor().predict_edges(at::tensor({0, 7}), at::tensor({5, 8}), at::tensor({1, 0})),
      LabelKind::kMultiLabel);
  const json answer = ask(of_links, R"({"edges": [[0, 5], [7, 8]], "rows": [1, 0]})");
  for (const std::int64_t i : {0, 1}) {
    const auto row = static_cast<std::size_t>(i);
    EXPECT_EQ(answer.at("classes").at(row).at(0).get<int>(), both.classes[i][0].item<int>());
    EXPECT_EQ(answer.at("probabilities").at(row).at(0).get<float>(),
              both.probabilities[i][0].item<float>());
  }
  const BadRequest bad_links[] = {
      {R"({"edges": [[0, 5]], "rows": [2]})", {"rows", "2"}},
      {R"({"edges": [[0, 5]], "rows": [0.5]})", {"rows", "integer"}},
      {R"({"edges": [[0, 5]], "rows": [1, 1]})", {"rows", "[1]", "[2]"}},
  };
  expect_errors(of_links, bad_links);
}

TEST(Serve, refuses_bad_requests_and_changes_nothing) {
  RequestHandler handler = trained_rings().handler();
  const BadRequest cases[] = {
      {"{", {"JSON object"}},
      {"{} {}", {"JSON object"}},
      {"[1]", {"JSON object"}},
      {"\xff", {"JSON object"}},
      {R"({"nodes": [1e999]})", {"JSON object"}},
      {std::string(100000, '['), {"JSON object"}},
      {"{}", {"nodes", "add_edges"}},
      {R"({"node": [1]})", {"nodes", "add_edges, remove_edges", "got node"}},
      {R"({"edges": [[1, 2]]})", {"edge", "node"}},
      {R"({"nodes": [1], "depth": 2})", {"depth", "fanouts"}},
      {R"({"nodes": [1], "add_edges": [[1, 2]]})", {"nodes", "add_edges"}},
      {R"({"nodes": 1})", {"nodes", "list of integers"}},
      {R"({"nodes": [0.5]})", {"nodes", "list of integers"}},
      {R"({"nodes": ["1"]})", {"nodes", "list of integers"}},
      {R"({"nodes": [40]})", {"40"}},
      {R"({"nodes": [-1]})", {"-1"}},
      {R"({"nodes": [9223372036854775807]})", {"9223372036854775807"}},
      {R"({"nodes": [18446744073709551615]})", {"nodes", "list of integers"}},
      {R"({"nodes": [1], "seed": 2})", {"seed", "fanouts"}},
      {R"({"nodes": [1], "fanouts": [1]})", {"2 fanouts", "1"}},
      {R"({"nodes": [1], "fanouts": [1, 1], "seed": -2})", {"seed", "at least 0"}},
      {R"({"add_edges": [[1, 2, 3]]})", {"add_edges", "pairs"}},
      {R"({"add_edges": [[1, 2], [3]]})", {"add_edges", "one length"}},
      {R"({"add_edges": [1, 2]})", {"add_edges", "pairs"}},
      {R"({"add_edges": [[1, 40]]})", {"add_edges", "40"}},
      {R"({"add_edges": [[1, 2]], "rows": [1]})", {"add_edges", "rows"}},
      {R"({"add_edges": [[1, 2]], "rows": "a"})", {"rows", "list"}},
      {R"({"remove_edges": [[1, 2]]})", {"1 to 2"}},
      {R"({"set_features": [1]})", {"set_features", "object"}},
      {R"({"set_features": {"nodes": [1]}})", {"features", "lists of numbers"}},
      {R"({"set_features": {"nodes": [1], "features": [[1]]}})", {"set_features", "6"}},
      {R"({"set_features": {"nodes": [1], "features": [[1, 2, 3, 4, 5, 1e300]]}})", {"finite"}},
      {R"({"set_features": {"nodes": [1], "features": [[1]], "x": 0}})", {"set_features", "x"}},
      {R"({"add_nodes": [[1, 2], [3]]})", {"add_nodes", "one length"}},
      {R"({"add_nodes": [[1, 2]]})", {"add_nodes", "6"}},
      {R"({"add_nodes": [["a"]]})", {"add_nodes", "lists of numbers"}},
  };
  expect_errors(handler, cases);
  expect_answer(ask(handler, R"({"nodes": [0, 1, 2, 3]})"),
                trained_rings().predictor().predict(at::arange(4)));
  EXPECT_EQ(ask(handler, R"({"add_edges": []})")["edges"], trained_rings().predictor().num_edges());
}

TEST(Serve, counts_requests_of_each_second) {
  using std::chrono::milliseconds;
  cli::RateLimit limit(2);
  const cli::RateLimit::Clock::time_point begin;
  EXPECT_TRUE(limit.take(begin));
  EXPECT_TRUE(limit.take(begin + milliseconds(500)));
  EXPECT_FALSE(limit.take(begin + milliseconds(999)));
  EXPECT_TRUE(limit.take(begin + milliseconds(1000)));
  EXPECT_TRUE(limit.take(begin + milliseconds(1000)));
  EXPECT_FALSE(limit.take(begin + milliseconds(1999)));
  EXPECT_TRUE(limit.take(begin + milliseconds(7000)));
}

/// The lines that serve_lines() answers to a file.
std::vector<std::string> answers_to(const std::string& requests, cli::ServeOptions options) {
  const TempFolder folder;
  const int in = ::open(folder.write("in", requests).c_str(), O_RDONLY);
  const int out = ::open(folder.write("out", "").c_str(), O_WRONLY);
  if (!options.should_stop) options.should_stop = [] { return false; };
  RequestHandler handler = trained_rings().handler();
  cli::serve_lines(handler, in, out, options);
  ::close(in);
  ::close(out);
  std::istringstream text(test::read_text(folder.path("out")));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST(Serve, answers_lines_in_order) {
  RequestHandler handler = trained_rings().handler();
  const std::string first = R"({"nodes": [1]})", second = R"({"nodes": [2]})";
  const std::vector<std::string> answers =
      answers_to(first + "\n\n  \r\nbad\n" + second + "\r\n" + first, {});
  ASSERT_EQ(answers.size(), 4U);
  EXPECT_EQ(answers[0], handler.answer(first));
  EXPECT_EQ(answers[1], handler.answer("bad"));
  EXPECT_EQ(answers[2], handler.answer(second));
  EXPECT_EQ(answers[3], handler.answer(first)) << "a last line without a line break";
  EXPECT_TRUE(answers_to("", {}).empty());
}

TEST(Serve, refuses_long_lines) {
  RequestHandler handler = trained_rings().handler();
  const std::string fits = R"({"nodes": [1]})", just = fits + " ";
  for (const std::size_t length : {std::size_t{16}, std::size_t{70000}, std::size_t{300000}}) {
    const std::vector<std::string> answers =
        answers_to(std::string(length, 'x') + '\n' + just + '\n' + fits + "  \n" + fits + '\n' +
                       std::string(length, ' '),
                   {.max_request_bytes = 15});
    ASSERT_EQ(answers.size(), 5U);
    for (const std::size_t i : {0, 2, 4}) EXPECT_TRUE(test::contains(answers[i], "15 bytes"));
    for (const std::size_t i : {1, 3}) EXPECT_EQ(answers[i], handler.answer(fits));
  }
}

TEST(Serve, refuses_requests_beyond_the_rate) {
  cli::RateLimit::Clock::time_point now;
  const std::vector<std::string> answers = answers_to(
      "1\n2\n3\n4\n5\n",
      {.max_requests_per_second = 2, .now = [&] { return now += std::chrono::milliseconds(300); }});
  ASSERT_EQ(answers.size(), 5U);
  for (const std::size_t i : {0, 1, 4}) EXPECT_TRUE(test::contains(answers[i], "JSON object"));
  for (const std::size_t i : {2, 3}) EXPECT_TRUE(test::contains(answers[i], "2 requests"));
}

TEST(Serve, stops_when_asked) {
  EXPECT_TRUE(answers_to("1\n", {.should_stop = [] { return true; }}).empty());
}

TEST(Serve, fails_if_nobody_reads) {
  const TempFolder folder;
  const int in = ::open(folder.write("in", "1\n").c_str(), O_RDONLY);
  const int out = ::open("/dev/full", O_WRONLY);
  RequestHandler handler = trained_rings().handler();
  EXPECT_THROWS(IoError, "standard output",
                cli::serve_lines(handler, in, out, {.should_stop = [] { return false; }}));
  ::close(in);
  ::close(out);
}

}  // namespace
}  // namespace mezzo
