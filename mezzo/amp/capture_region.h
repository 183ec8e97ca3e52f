#pragma once

namespace mezzo::amp::detail {

/// Whether the calling thread is capturing a step. Captured kernels run at each replay; host code
/// runs only now.
bool is_capturing();

}  // namespace mezzo::amp::detail
