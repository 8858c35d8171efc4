// Functions that all ways to submit a job share. Thread-safe.
#ifndef LYNX_CLI_CONNECT_SUBMISSION_H_
#define LYNX_CLI_CONNECT_SUBMISSION_H_

#include <string>

namespace lynx::cli {

// An idempotency key that no other submission has.
std::string FreshKey();
// What to tell the submitter. `existed`: an earlier call with this key has already submitted this job.
std::string SubmittedText(const std::string& job, bool existed);

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_SUBMISSION_H_
