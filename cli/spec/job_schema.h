// A JSON Schema (draft 7) of job files, for editors. It is made from the table of fields. Pure; thread-safe.
#ifndef LYNX_CLI_SPEC_JOB_SCHEMA_H_
#define LYNX_CLI_SPEC_JOB_SCHEMA_H_

#include <string>

namespace lynx::cli {

// JSON text, indented, with a final newline. It accepts every valid job file, and a few that lynxctl rejects because of
// their values.
std::string JobSchemaText();

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_JOB_SCHEMA_H_
