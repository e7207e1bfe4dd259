// Stackful coroutines for the executor: one per GPU thread of a block.
#pragma once
#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

class Fiber {
 public:
  Fiber() = default;
  Fiber(Fiber&& other) noexcept { *this = static_cast<Fiber&&>(other); }
  Fiber& operator=(Fiber&& other) noexcept;
  ~Fiber();

  // Makes the next resume() call entry on a fresh stack. colour staggers the stacks, which would otherwise
  // share cache sets.
  void start(void (*entry)(), unsigned colour);
  void resume();                     // from the scheduler: runs until the fiber calls suspend()
  void suspend(bool final = false);  // from the fiber: back to resume(); final: it will not be resumed
  void abandon();         // in the middle of its run: clears what the address sanitizer knows of its frames
  static void entered();  // first statement of entry

  static constexpr size_t kStackBytes = 256 * 1024;

 private:
#if defined(__x86_64__)
  void* stack_pointer_ = nullptr;
#else
  ucontext_t context_;
#endif
  char* stack_ = nullptr;
  void* fake_stack_ = nullptr;  // of the address sanitizer
};

}  // namespace simt
