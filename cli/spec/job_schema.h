// A JSON Schema (draft 7) of job files, for editors: made from the table of fields. Pure; thread-safe.
#ifndef LYNX_CLI_SPEC_JOB_SCHEMA_H_
#define LYNX_CLI_SPEC_JOB_SCHEMA_H_

#include <string>

namespace lynx {

// JSON text, indented, with a last newline. It takes what a job file may be, and a few that lynxctl refuses by their values.
std::string JobSchemaText();

}  // namespace lynx

#endif  // LYNX_CLI_SPEC_JOB_SCHEMA_H_
