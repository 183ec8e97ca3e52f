#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "mezzo/cli/serve/rate_limit.h"
#include "mezzo/cli/serve/request_handler.h"

namespace mezzo::cli {

/// Options of a server.
struct ServeOptions {
  std::int64_t max_request_bytes = 1 << 20;     ///< of a line; a longer one gets an error
  std::int64_t max_requests_per_second = 1000;  ///< of all connections; others get an error
  std::function<bool()> should_stop = {};       ///< asked about five times a second
  std::function<RateLimit::Clock::time_point()> now = RateLimit::Clock::now;
};

/// Answers the lines of the file `in`, in order, on the file `out`, until the end of `in` or until
/// should_stop(). Throws IoError if writing fails.
void serve_lines(RequestHandler& handler, int in, int out, const ServeOptions& options);

/// Answers up to 64 connections at once on the Unix socket `path`, each in a thread of its own,
/// until should_stop(); then it answers the requests that it has read, and removes `path`. Only the
/// user of the process may connect. A connection that reads no answer for 10 s is closed. Throws
/// InvalidArgument if the path is too long or exists, unless it is a socket that nobody serves;
/// IoError if it cannot be made.
void serve_socket(RequestHandler& handler, const std::string& path, const ServeOptions& options);

}  // namespace mezzo::cli
