#pragma once

#include "mezzo/core/export.h"

namespace mezzo::detail {

/// While an object lives, parallel regions of the calling thread, those of libtorch too, run on
/// this thread alone. The destructor restores the thread's number. Does not touch other threads.
class MEZZO_API OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int previous_;
};

}  // namespace mezzo::detail
