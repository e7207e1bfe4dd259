// Machines that times were measured on, and which of them stands for a device.
#pragma once
#include <string>

#include "choose/measured.h"
#include "problem/device.h"

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

// GPUs take as long with either of the 16-bit types.
inline DType measured_dtype(DType dtype, Backend backend) {
  return dtype == DType::float16 && backend != Backend::cpu ? DType::bfloat16 : dtype;
}

inline std::string source_of(const MeasuredMachine& machine, const DeviceTraits& device) {
  return (is_same(machine, device) ? "measured on " : "scaled from ") + std::string(machine.name);
}

// Plan::doubt of a time predicted from layers that are no nearer than this, in octaves. Another GPU's times
// in the ratio of its rates are worth less. So are those of a CPU, which may be any with this instruction
// set: of 571 dense layers that convx led with on an EPYC it lost 105 on a Xeon, of 167 where it was twice as
// fast 4.
inline double doubt_of(double nearest, const MeasuredMachine& machine, const DeviceTraits& device) {
  const double elsewhere = device.backend == Backend::cpu ? 2 : is_same(machine, device) ? 1 : 1.5;
  return (1.02 + 0.375 * nearest) * elsewhere;
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
