// A Predictor behind HTTP (cpp-httplib), and a page that draws a node with its neighbours.
// argv: checkpoint of nodes with a class each, data set, port (0: a free one), host.
//
//   GET /           the page
//   GET /nodes/7    {"nodes": [{"id": 7, "class": 2, "probability": 0.9}, ...], "edges": ..., ...}
//   POST /edges     {"add": [[3, 7], ...]} or {"remove": [[3, 7], ...]}, [source, destination]
#include <csignal>
#include <iostream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <httplib.h>
#include <nlohmann/json.hpp>

#include <mezzo/mezzo.h>

using httplib::Request, httplib::Response, nlohmann::json;

namespace {

constexpr std::size_t kMaxNeighbors = 24, kThreads = 8, kMaxBodyBytes = 1 << 20;
constexpr auto kJson = "application/json";

std::set<int64_t> neighbors_of(const mezzo::Predictor& predictor, int64_t node) {
  const torch::Tensor sources = predictor.in_neighbors(node);
  const auto* first = sources.const_data_ptr<int64_t>();
  std::set<int64_t> neighbors(first, first + sources.numel());
  neighbors.erase(node);
  return neighbors;
}

/// A node, its first neighbours by id, their classes, and the edges between all of these.
json neighborhood(const mezzo::Predictor& predictor, const std::vector<std::string>& class_names,
                  int64_t node) {
  const std::set<int64_t> neighbors = neighbors_of(predictor, node);
  std::vector<int64_t> ids = {node};
  for (const int64_t neighbor : neighbors) {
    if (ids.size() <= kMaxNeighbors) ids.push_back(neighbor);
  }
  const std::set<int64_t> shown(ids.begin(), ids.end());
  const auto [probabilities, classes] = predictor.predict(torch::tensor(ids)).softmax(1).max(1);
  json nodes = json::array(), edges = json::array();
  for (const int64_t id : ids) {
    const auto row = static_cast<int64_t>(nodes.size()), predicted = classes[row].item<int64_t>();
    const auto probability = probabilities[row].item<float>();
    nodes.push_back({{"id", id}, {"class", predicted}, {"probability", probability}});
    if (!class_names.empty()) nodes.back()["name"] = class_names.at(predicted);
    for (const int64_t source : neighbors_of(predictor, id)) {
      if (shown.contains(source)) edges.push_back({source, id});
    }
  }
  return {{"nodes", nodes}, {"edges", edges}, {"num_neighbors", neighbors.size()}};
}

/// The sources (end 0) or destinations of a list of pairs.
torch::Tensor ids_of(const json& pairs, std::size_t end) {
  std::vector<int64_t> ids;
  bool are_pairs = pairs.is_array();
  for (const json& pair : pairs) {
    are_pairs = are_pairs && pair.is_array() && pair.size() == 2 && pair[end].is_number_integer();
    ids.push_back(are_pairs ? pair[end].get<int64_t>() : 0);
  }
  if (!are_pairs) throw mezzo::InvalidArgument("edges: expected a list of pairs of integers");
  return torch::tensor(ids);
}

json change_edges(mezzo::Predictor& predictor, const Request& request) {
  // A page of another site may post, but not this type.
  if (request.get_header_value("Content-Type") != kJson) {
    throw mezzo::InvalidArgument(std::string("expected Content-Type: ") + kJson);
  }
  const json body = json::parse(request.body, nullptr, /*allow_exceptions=*/false);
  if (body.size() != 1 || (!body.contains("add") && !body.contains("remove"))) {
    throw mezzo::InvalidArgument("expected a JSON object with add or remove");
  }
  const torch::Tensor src = ids_of(body.front(), 0), dst = ids_of(body.front(), 1);
  body.contains("add") ? predictor.add_edges(src, dst) : predictor.remove_edges(src, dst);
  return {{"edges", predictor.num_edges()}};
}

void set_json(Response& response, int status, const json& answer) {
  response.status = status;
  response.set_content(answer.dump(-1, ' ', false, json::error_handler_t::replace), kJson);
}

void set_error(Response& response, int status, const std::string& text) {
  set_json(response, status, {{"error", text.substr(0, text.find('\n'))}});
}

/// Answers what respond() returns, or the error that it throws.
template <class Respond>
httplib::Server::Handler answering(const Respond& respond) {
  return [respond](const Request& request, Response& response) {
    try {
      set_json(response, 200, respond(request));
    } catch (const mezzo::InvalidArgument& error) {
      set_error(response, 400, error.what());
    } catch (const std::exception& error) {
      set_error(response, 500, error.what());
    }
  };
}

}  // namespace

int main(int argc, char** argv) {
  sigset_t signals;  // blocked in every thread, as one of them waits for them
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const mezzo::Dataset data = mezzo::load_dataset(argv[2], {.labels_optional = true});
  mezzo::Predictor predictor(mezzo::load_checkpoint(argv[1]), data, {.resident = true});
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  server.set_payload_max_length(kMaxBodyBytes);
  server.set_read_timeout(5).set_write_timeout(5).set_keep_alive_timeout(1);  // seconds
  server.set_mount_point("/", HTTP_SERVER_PAGE);
  server.Get(R"(/nodes/(\d{1,18}))", answering([&](const Request& request) {
               return neighborhood(predictor, data.class_names, std::stoll(request.matches[1]));
             }));
  server.Post("/edges",
              answering([&](const Request& request) { return change_edges(predictor, request); }));
  server.set_error_handler([](const Request&, Response& response) {
    if (response.body.empty())
      set_error(response, response.status, "HTTP status " + std::to_string(response.status));
  });

  const char* const host = argc > 4 ? argv[4] : "127.0.0.1";
  int port = argc > 3 ? std::stoi(argv[3]) : 8080;
  const bool is_bound =
      port == 0 ? (port = server.bind_to_any_port(host)) > 0 : server.bind_to_port(host, port);
  if (!is_bound) throw mezzo::IoError(std::string("cannot listen on ") + host);
  std::thread stopper([&] {
    int signal = 0;
    sigwait(&signals, &signal);
    while (!server.is_running()) std::this_thread::yield();  // it came early
    server.stop();
  });
  std::cout << "http://" << host << ':' << port << '/' << std::endl;
  if (!server.listen_after_bind()) std::quick_exit(1);
  stopper.join();
}
