// What Python tells the planner and the operator libraries as text: a problem, and what was found for it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "problem/block_problem.h"
#include "problem/excite_problem.h"
#include "problem/filter_problem.h"

namespace convx {

// The lines of a record, "name = value" each. Every value can be taken once. All throw InvalidArgument.
class RecordFields {
 public:
  explicit RecordFields(const std::string& record);
  bool says(const char* name, const char* value) const;  // without taking it
  std::string text(const char* name);
  std::string text_or(const char* name, const char* otherwise);  // where the record has no such line
  int64_t integer(const char* name);
  int64_t integer_or(const char* name, int64_t otherwise);
  std::vector<int64_t> integers(const char* name, size_t count);
  double number(const char* name);
  void require_empty() const;  // nothing that nobody asked for

 private:
  std::map<std::string, std::string> values_;
};

// ConvProblem from every field of _core.Problem by its name there, pairs and paddings as numbers with spaces
// between; scale, residual and residual_after_activation may be left out. The other kinds from
// those of their own in _core; a block without squeeze-and-excitation may leave out what is said of it.
template <class Problem>
Problem read_problem(RecordFields& fields);
template <>
ConvProblem read_problem(RecordFields& fields);
template <>
FilterProblem read_problem(RecordFields& fields);
template <>
BlockProblem read_problem(RecordFields& fields);
template <>
ExciteProblem read_problem(RecordFields& fields);

}  // namespace convx
