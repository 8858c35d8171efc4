// Words and numbers that pages, tables and plots about jobs share. Pure; thread-safe.
#ifndef LYNX_REPORT_TEXTS_H_
#define LYNX_REPORT_TEXTS_H_

#include <string>

#include "lynx/v1/jobs.pb.h"

namespace lynx {

std::string StateName(v1::JobState state);  // "RUNNING"
bool IsFinal(v1::JobState state);

// "12.3k", "4.56M"; a count with three digits.
std::string Count(double value);

}  // namespace lynx

#endif  // LYNX_REPORT_TEXTS_H_
