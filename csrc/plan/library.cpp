#include "plan/library.h"

#include <atomic>

namespace convx {
namespace {

std::atomic<const KernelLibrary*> libraries[2];

}  // namespace

void register_library(bool gpu, const KernelLibrary& library) {
  libraries[gpu] = new KernelLibrary(library);
}

const KernelLibrary* find_library(bool gpu) {
  return libraries[gpu];
}

}  // namespace convx
