// Says what to write in place of a number, size, rate or duration that cannot be read. The text is the part of the message
// after "; ". This is advice only; scalar_text.h does the reading. Each function returns "" if it cannot tell what was meant.
// Pure; thread-safe.
#ifndef LYNX_CLI_SPEC_SCALAR_ADVICE_H_
#define LYNX_CLI_SPEC_SCALAR_ADVICE_H_

#include <string>

namespace lynx::cli {

// The comments are examples of `text`.
std::string WholeNumberAdvice(const std::string& text);  // "1e9", "1_000", "1,000", "4 gpus"
std::string RealAdvice(const std::string& text);         // "0,1", "10%", "1_000"
std::string SizeAdvice(const std::string& text);         // "80G", "80gb", "80 GiB"
std::string ByteRateAdvice(const std::string& text);     // "300GB", "200Gbps"
std::string FlopRateAdvice(const std::string& text);     // "312TFLOPS"
std::string DurationAdvice(const std::string& text);     // "30m", "12 hours", "3600", "12:00:00"

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_SCALAR_ADVICE_H_
