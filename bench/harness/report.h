#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mezzo/amp/precision.h"

#include "bench/harness/measure.h"

namespace mezzo::bench {

/// The outcomes of one run of a program and the conditions.
struct Report {
  std::string graph;  ///< its name, or empty
  std::int64_t num_nodes = 0, num_edges = 0;
  std::int64_t threads = 1, rounds = 0;
  double stream_bandwidth = 0;  ///< bytes per second, see stream_bandwidth()
  std::vector<Outcome> outcomes;
};

/// One line: graph, threads, rounds, stream bandwidth, instruction sets.
std::string format_conditions(const Report& report);

/// A table of one comparison, one line per candidate: minimum and median in ms, the error, the
/// memory beyond the operands, and the median of each stage. Without stages: bytes moved per second
/// and their share of `stream_bandwidth`, or operations per second if the work is bound by
/// arithmetic. Mezzo's candidates have their speed-up over each baseline and over Mezzo's float32,
/// by minima. Skipped candidates follow with their reasons.
std::string format_outcome(const Outcome& outcome, double stream_bandwidth);

/// A table of all comparisons, one per line: minima in ms of the fastest float32 baseline and of
/// Mezzo in each of `precisions`; the speed-up of Mezzo's float32 over that baseline, and of the
/// other precisions over Mezzo's float32. Skipped candidates follow with their reasons.
std::string format_summary(const Report& report, const std::vector<amp::Precision>& precisions);

/// One JSON object with all times.
std::string report_to_json(const Report& report);

}  // namespace mezzo::bench
