// Exit codes of lynxctl; `lynxctl --help` prints them.
#ifndef LYNX_CLI_OUTPUT_EXIT_CODE_H_
#define LYNX_CLI_OUTPUT_EXIT_CODE_H_

#include "absl/status/status.h"

namespace lynx::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitJobFailed = 1;    // a watched job failed or was cancelled; a planned job is infeasible; doctor warns;
                                            // a part of a local cluster does not run
inline constexpr int kExitBadInput = 2;     // the command line or an input file is wrong
inline constexpr int kExitUnreachable = 3;  // the server did not answer in time
inline constexpr int kExitNotFound = 4;     // the job, node or file does not exist
inline constexpr int kExitRefused = 5;      // the server refused, or something else went wrong
inline constexpr int kExitInterrupted = 130;

inline constexpr char kExitCodeHelp[] =
    "Exit codes: 0 done; 1 the job failed, was cancelled or cannot fit, doctor warns, or not all of a local cluster runs;\n"
    "2 bad command line or input file; 3 server not reached in time; 4 no such job, node or file; 5 refused or another "
    "failure;\n"
    "130 interrupted.";

inline int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk: return kExitOk;
    case absl::StatusCode::kInvalidArgument: return kExitBadInput;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded: return kExitUnreachable;
    case absl::StatusCode::kNotFound: return kExitNotFound;
    default: return kExitRefused;
  }
}

}  // namespace lynx::cli

#endif  // LYNX_CLI_OUTPUT_EXIT_CODE_H_
