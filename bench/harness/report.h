#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mezzo/amp/precision.h"

#include "bench/harness/measure.h"

namespace mezzo::bench {

/// The outcomes of one run of a program, and under which conditions they were measured.
struct Report {
  std::string graph;  ///< its name; empty where there is none
  std::int64_t num_nodes = 0, num_edges = 0;
  std::int64_t threads = 1, rounds = 0;
  double stream_bandwidth = 0;  ///< bytes a second, see stream_bandwidth()
  std::vector<Outcome> outcomes;
};

/// One line: graph, threads, rounds, stream bandwidth, instruction sets.
std::string format_conditions(const Report& report);

/// A table of one comparison, a candidate a line: minimum and median in ms, the error, the memory
/// beyond the operands, the median of each stage, or else the bytes moved a second and their share
/// of `stream_bandwidth` (of work that arithmetic bounds, its operations a second); of ours, how
/// often as fast as each baseline and as our float32 they are, by minima. The reasons for what was
/// skipped come below.
std::string format_outcome(const Outcome& outcome, double stream_bandwidth);

/// A table of all comparisons, one a line: the fastest baseline in float32 and ours in each of
/// `precisions`, minima in ms; how often as fast as that baseline float32 is, and as float32 the
/// others are. The reasons for what was skipped come below.
std::string format_summary(const Report& report, const std::vector<amp::Precision>& precisions);

/// One JSON object with all times.
std::string report_to_json(const Report& report);

}  // namespace mezzo::bench
