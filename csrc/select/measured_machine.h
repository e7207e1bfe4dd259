// Machines that times were measured on, and which of them stands for a device.
#pragma once
#include <string>

#include "problem/device.h"
#include "select/measured.h"

namespace convx {

struct MeasuredMachine {
  const char* name;
  Backend backend;
  CpuIsa isa;
  double bandwidth_GBps;  // as DeviceTraits has it there
};

inline bool is_same(const MeasuredMachine& machine, const DeviceTraits& device) {
  return machine.bandwidth_GBps == device.bandwidth_GBps &&
         (device.backend == Backend::cpu || device.name.rfind(machine.name, 0) == 0);
}

inline std::string source_of(const MeasuredMachine& machine, const DeviceTraits& device) {
  return (is_same(machine, device) ? "measured on " : "scaled from ") + std::string(machine.name);
}

// The device itself, or else the first of its kind; nullptr where there is none. Tables are of structs that
// have a MeasuredMachine as `machine`.
template <class Table>
auto find_machine(const Table& table, const DeviceTraits& device) -> decltype(&*std::begin(table)) {
  decltype(&*std::begin(table)) similar = nullptr;
  for (const auto& each : table) {
    if (each.machine.backend != device.backend) continue;
    if (device.backend == Backend::cpu && each.machine.isa != device.isa) continue;
    if (is_same(each.machine, device)) return &each;
    if (similar == nullptr) similar = &each;
  }
  return similar;
}

}  // namespace convx
