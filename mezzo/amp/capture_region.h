#pragma once

namespace mezzo::amp::detail {

/// Whether the calling thread is capturing a step: what it queues is kept and done later, many
/// times, and what the host computes now stays as it is.
bool is_capturing();

}  // namespace mezzo::amp::detail
