// Keeps the certificate of the cluster's authority in a context file up to date. The server renews it years before the old one
// ends, with the same key. So a person who calls the server at least once in the last third of the old one's lifetime never
// needs a new context. Thread-safe for different files.
#ifndef LYNX_CLI_CONNECT_AUTHORITY_RENEWAL_H_
#define LYNX_CLI_CONNECT_AUTHORITY_RENEWAL_H_

#include <string>

#include "cli/connect/client.h"
#include "common/units.h"

namespace lynx::cli {

// If two thirds of the lifetime of the authority's certificate in the file are over, asks the server for the present one, and
// writes it into the file. `now`: Unix time. Returns a note for the person who uses the file; empty: nothing was due, or the
// server has no other certificate yet, or did not answer (the caller's own call then says why).
std::string RenewAuthority(Client& client, const std::string& context_file, Nanos now);

}  // namespace lynx::cli

#endif  // LYNX_CLI_CONNECT_AUTHORITY_RENEWAL_H_
