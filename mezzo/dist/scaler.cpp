#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "mezzo/core/error.h"
#include "mezzo/dist/data_parallel.h"

namespace mezzo::dist {
namespace {

/// Converts the state to numbers and back; counts are exact below 2^53.
std::vector<double> numbers_of(const amp::ScalerState& state) {
  std::vector<double> numbers = {state.scale, state.growth_factor, state.backoff_factor};
  for (const std::int64_t count :
       {state.growth_interval, state.growth_tracker, state.hysteresis_spent,
        state.updates_since_rescale, state.overflows_since_rescale, state.skipped_steps}) {
    numbers.push_back(static_cast<double>(count));
  }
  numbers.insert(numbers.end(), state.rule.begin(), state.rule.end());
  return numbers;
}

amp::ScalerState state_of(const double* number, std::size_t rule_size) {
  amp::ScalerState state;
  state.scale = *number++;
  state.growth_factor = *number++;
  state.backoff_factor = *number++;
  for (std::int64_t* count :
       {&state.growth_interval, &state.growth_tracker, &state.hysteresis_spent,
        &state.updates_since_rescale, &state.overflows_since_rescale, &state.skipped_steps}) {
    *count = static_cast<std::int64_t>(*number++);
  }
  state.rule.assign(number, number + rule_size);
  return state;
}

}  // namespace

amp::GradScalerOptions synchronized(amp::GradScalerOptions options, const ProcessGroup& group) {
  if (group.world_size() == 1) return options;
  options.reduce_found_inf = [group](at::Tensor& found_inf) {
    const at::Tensor flag = found_inf.ne(0);  // a float maximum would take two exchanges
    group.all_reduce(flag, ReduceOp::kSum);   // "any"
    found_inf.copy_(flag);
  };
  return options;
}

void synchronize(amp::GradScaler& scaler, const ProcessGroup& group) {
  if (group.world_size() == 1) return;
  const amp::ScalerState own = scaler.state_dict();
  const std::vector<std::int64_t> others = group.ranks_that_differ(
      fmt::format("enabled {}, {} values of a rule", scaler.is_enabled(), own.rule.size()));
  MEZZO_CHECK(others.empty(),
              "dist::synchronize: expected scalers that are enabled, and have rules, as rank 0's, "
              "got others on ranks {}",
              fmt::join(others, ", "));
  if (!scaler.is_enabled()) return;
  const at::Tensor numbers = at::tensor(numbers_of(own), at::kDouble).to(group.device());
  group.broadcast(numbers);
  const at::Tensor received = numbers.cpu();
  scaler.load_state_dict(state_of(received.const_data_ptr<double>(), own.rule.size()));
}

}  // namespace mezzo::dist
