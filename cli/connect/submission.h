// What every way to submit a job has in common. Thread-safe.
#ifndef LYNX_CLI_CONNECT_SUBMISSION_H_
#define LYNX_CLI_CONNECT_SUBMISSION_H_

#include <string>

namespace lynx {

// An idempotency key that no other submission has.
std::string FreshKey();
// What the submitter is told; `existed`: the key had been used for this very job.
std::string SubmittedText(const std::string& job, bool existed);

}  // namespace lynx

#endif  // LYNX_CLI_CONNECT_SUBMISSION_H_
