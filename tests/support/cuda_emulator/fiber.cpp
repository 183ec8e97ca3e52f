#include "fiber.h"

#include <cstdint>
#include <new>
#include <utility>

#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// swapcontext makes a system call for the signal mask; this is the rest. It saves the registers
// that a call preserves and its own stack pointer in *from, and goes on where `to` was saved.
extern "C" void mezzo_switch_stack(void** from, void* to);
asm(R"(
.text
.type mezzo_switch_stack, @function
mezzo_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mezzo_switch_stack, .-mezzo_switch_stack
.type mezzo_enter_stack, @function
mezzo_enter_stack:
  movq %r12, %rdi
  callq *%rbx
  ud2
.size mezzo_enter_stack, .-mezzo_enter_stack
)");
extern "C" void mezzo_enter_stack();
#endif

namespace mezzo::kernels::cuda::emulator {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;
constexpr std::size_t kGuardBytes = 4096;

void before_switch(const void* stack, std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, stack, bytes);
#else
  static_cast<void>(stack);
  static_cast<void>(bytes);
#endif
}

void after_switch(const void** stack, unsigned long* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, stack, bytes);
#else
  static_cast<void>(stack);
  static_cast<void>(bytes);
#endif
}

}  // namespace

Fiber::Fiber(Fiber&& other) noexcept : stack_(std::exchange(other.stack_, nullptr)) {}

Fiber::~Fiber() {
  if (stack_ != nullptr) munmap(stack_, kStackBytes);
}

void Fiber::start(void (*function)(void*), void* argument) {
  if (stack_ == nullptr) {
    void* const pages = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    mprotect(pages, kGuardBytes, PROT_NONE);
    stack_ = pages;
  }
#if defined(__SANITIZE_ADDRESS__)
  // An abandoned thread leaves poisoned stack memory.
  __asan_unpoison_memory_region(static_cast<char*>(stack_) + kGuardBytes,
                                kStackBytes - kGuardBytes);
#endif
  function_ = function;
  argument_ = argument;
#if defined(__x86_64__)
  // What mezzo_switch_stack takes off: six registers and the address to continue at; the stack is
  // then aligned as at the start of a function's caller.
  auto* top = reinterpret_cast<std::uintptr_t*>(static_cast<char*>(stack_) + kStackBytes);
  top -= 2;
  *--top = reinterpret_cast<std::uintptr_t>(&mezzo_enter_stack);
  *--top = 0;                                         // rbp
  *--top = reinterpret_cast<std::uintptr_t>(&enter);  // rbx
  *--top = reinterpret_cast<std::uintptr_t>(this);    // r12
  for (int i = 0; i < 3; ++i) *--top = 0;             // r13, r14, r15
  inside_ = top;
#else
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_;
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(this);
  // makecontext passes ints.
  auto* const entry = +[](unsigned low, unsigned high) {
    enter(reinterpret_cast<void*>(std::uintptr_t{high} << 32 | low));
  };
  makecontext(&inside_, reinterpret_cast<void (*)()>(entry), 2, static_cast<unsigned>(address),
              static_cast<unsigned>(std::uint64_t{address} >> 32));
#endif
}

void Fiber::enter(void* self) {
  auto& fiber = *static_cast<Fiber*>(self);
  after_switch(&fiber.outside_stack_, &fiber.outside_size_);
  fiber.function_(fiber.argument_);
}

void Fiber::resume() {
  before_switch(stack_, kStackBytes);
#if defined(__x86_64__)
  mezzo_switch_stack(&outside_, inside_);
#else
  swapcontext(&outside_, &inside_);
#endif
  const void* stack = nullptr;
  unsigned long bytes = 0;
  after_switch(&stack, &bytes);
}

void Fiber::leave() {
  before_switch(outside_stack_, outside_size_);
#if defined(__x86_64__)
  mezzo_switch_stack(&inside_, outside_);
#else
  swapcontext(&inside_, &outside_);
#endif
  after_switch(&outside_stack_, &outside_size_);
}

}  // namespace mezzo::kernels::cuda::emulator
