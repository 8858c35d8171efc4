// FindServer: finds the server that a command talks to, from flags, the environment, contexts and the local cluster.
// One thread.
#ifndef LYNX_CLI_LOCAL_FIND_SERVER_H_
#define LYNX_CLI_LOCAL_FIND_SERVER_H_

#include <string>

#include "cli/connect/client.h"

namespace lynx::cli {

// The flags of the command line about the connection; "" = not given.
struct ConnectionFlags {
  std::string server;   // HOST:PORT, or several with commas
  std::string context;  // a context's name, or a file (security/context_file.h)
  std::string ca_file;
  std::string token_file;
  bool no_context = false;  // ignore all contexts, and what the environment says of contexts, authorities and tokens
};

// FindServer takes the address from the first of these that is given: --server; $LYNX_SERVER; the context's server; the local
// cluster in LocalDirectory(); the server in ~/.config/lynx/context.json; 127.0.0.1:7470.
// It takes the context from the first of these: --context; $LYNX_CONTEXT, a name (cli/connect/contexts.h) or a file; the
// context in use. If --server or $LYNX_SERVER is given, the context in use is read only if it names the same server, or all
// servers that are called. If there is no such context, a file that somebody put at ~/.config/lynx/context.json by hand is read
// under the same condition. --no-context ignores all of them; it excludes --context.
// It takes authority and token from --ca-file or $LYNX_CA_FILE, and --token-file or $LYNX_TOKEN_FILE; otherwise from the
// context. With --no-context only the two flags are read.
ServerAddress FindServer(const ConnectionFlags& flags);

// The address for a context that is given to somebody. `own`: the one that this call used; `servers`: what the server says of
// itself and of the servers beside it, may be "". A loopback address is useless on another machine, and a context should name
// all servers. An address that the server does not know, such as a load balancer's, stays.
std::string AddressForOthers(const std::string& own, const std::string& servers);

}  // namespace lynx::cli

#endif  // LYNX_CLI_LOCAL_FIND_SERVER_H_
