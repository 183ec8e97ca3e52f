#pragma once

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace mezzo::kernels::cuda::emulator {

/// A function with a stack of its own, that runs in turns with its caller.
class Fiber {
 public:
  Fiber() = default;
  Fiber(Fiber&& other) noexcept;
  Fiber& operator=(Fiber&&) = delete;
  ~Fiber();

  /// Makes `function(argument)` what the next `resume` runs; what ran before is forgotten, so it
  /// may hold nothing that needs a destructor. The function must not return: it ends in `leave`.
  void start(void (*function)(void*), void* argument);
  /// Runs the function on until it leaves.
  void resume();
  /// From inside the function: goes back to where `resume` was called.
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
