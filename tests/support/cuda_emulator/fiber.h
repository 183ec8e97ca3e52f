#pragma once

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace mezzo::kernels::cuda::emulator {

/// A function with its own stack that alternates with its caller.
class Fiber {
 public:
  Fiber() = default;
  Fiber(Fiber&& other) noexcept;
  Fiber& operator=(Fiber&&) = delete;
  ~Fiber();

  /// Sets `function(argument)` for the next `resume`. The previous function is discarded without
  /// running destructors. The function must not return: it ends in `leave`.
  void start(void (*function)(void*), void* argument);
  /// Runs the function until it calls `leave`.
  void resume();
  /// Called inside the function: returns to the caller of `resume`.
  void leave();

 private:
  static void enter(void* self);

  void* stack_ = nullptr;
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
#if defined(__x86_64__)
  void* inside_ = nullptr;  // the stack pointers of the two sides
  void* outside_ = nullptr;
#else
  ucontext_t inside_, outside_;
#endif
  const void* outside_stack_ = nullptr;  // for the address sanitizer
  unsigned long outside_size_ = 0;
};

}  // namespace mezzo::kernels::cuda::emulator
