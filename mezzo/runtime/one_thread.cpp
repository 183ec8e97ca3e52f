#include "mezzo/runtime/one_thread.h"

#include <ATen/Parallel.h>
#include <omp.h>

namespace mezzo::detail {

// at::set_num_threads() would also set MKL's number, which all threads share. libtorch sets the
// number when a thread first calls it, and so does each library with its own copy of libtorch's
// inline functions, so both are called first.
OneThread::OneThread() {
  static_cast<void>(at::get_num_threads());
  at::internal::lazy_init_num_threads();
  previous_ = omp_get_max_threads();
  omp_set_num_threads(1);
}

OneThread::~OneThread() {
  omp_set_num_threads(previous_);
}

}  // namespace mezzo::detail
