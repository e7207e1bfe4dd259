#include "fiber.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <utility>

#if defined(SIMT_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {
namespace {

constexpr size_t kGuardBytes = 4096;

// The scheduler's side of a switch.
#if defined(__x86_64__)
void* scheduler_stack_pointer;
#else
ucontext_t scheduler_context;
#endif
#if defined(SIMT_ADDRESS_SANITIZER)
const void* scheduler_stack = nullptr;
size_t scheduler_stack_bytes = 0;
void* scheduler_fake_stack = nullptr;
#endif

}  // namespace

#if defined(__x86_64__)
// Saves the callee-saved registers and the stack pointer, loads those of the other side. The return is a
// jump: a mispredicted ret costs more than the rest of the switch.
extern "C" void convx_simt_switch(void** save, void* load);
__asm__(
    ".text\n"
    ".type convx_simt_switch, @function\n"
    "convx_simt_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  popq %rcx\n"
    "  jmpq *%rcx\n"
    ".size convx_simt_switch, .-convx_simt_switch\n");
#endif

Fiber& Fiber::operator=(Fiber&& other) noexcept {
#if defined(__x86_64__)
  std::swap(stack_pointer_, other.stack_pointer_);
#else
  std::swap(context_, other.context_);
#endif
  std::swap(stack_, other.stack_);
  std::swap(fake_stack_, other.fake_stack_);
  return *this;
}

Fiber::~Fiber() {
  if (stack_) munmap(stack_ - kGuardBytes, kStackBytes + kGuardBytes);
}

void Fiber::start(void (*entry)(), unsigned colour) {
  if (!stack_) {
    void* memory = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, kGuardBytes, PROT_NONE);
    stack_ = static_cast<char*>(memory) + kGuardBytes;
  }
  const size_t bytes = kStackBytes - colour % 61 * 64;
#if defined(__x86_64__)
  // As convx_simt_switch leaves it: six registers, the address to jump to, and a stack that is 8 mod 16, as
  // after a call.
  void** top = reinterpret_cast<void**>(stack_ + bytes) - 1;
  *top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, entry, 0);
#endif
  fake_stack_ = nullptr;
}

void Fiber::abandon() {
#if defined(SIMT_ADDRESS_SANITIZER)
  if (stack_) __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
}

void Fiber::resume() {
#if defined(SIMT_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, stack_, kStackBytes);
#endif
#if defined(__x86_64__)
  convx_simt_switch(&scheduler_stack_pointer, stack_pointer_);
#else
  swapcontext(&scheduler_context, &context_);
#endif
#if defined(SIMT_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
#endif
}

void Fiber::suspend(bool final) {
#if defined(SIMT_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(final ? nullptr : &fake_stack_, scheduler_stack, scheduler_stack_bytes);
#else
  (void) final;
#endif
#if defined(__x86_64__)
  convx_simt_switch(&stack_pointer_, scheduler_stack_pointer);
#else
  swapcontext(&context_, &scheduler_context);
#endif
#if defined(SIMT_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::entered() {
#if defined(SIMT_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

}  // namespace simt
