// FindServer: the server that a command talks to, by flags, environment, contexts and the local cluster. One thread.
#ifndef LYNX_CLI_LOCAL_FIND_SERVER_H_
#define LYNX_CLI_LOCAL_FIND_SERVER_H_

#include <string>

#include "cli/connect/client.h"

namespace lynx {

// What the command line says about the connection; "" = not given.
struct ConnectionFlags {
  std::string server;
  std::string context;  // a context's name, or a file (security/context_file.h)
  std::string ca_file;
  std::string token_file;
  bool no_context = false;  // nor that of the environment
};

// --server, else $LYNX_SERVER, else that of the context file, else the address of the local cluster in LocalDirectory(), else
// that of the context file which is always looked for, else 127.0.0.1:7470.
// Context: --context, else $LYNX_CONTEXT, a name (cli/connect/contexts.h) or a file; else the one in use. Without any, a file
// that was put to ~/.config/lynx/context.json by hand counts where its server is the one that is called. Authority and token:
// --ca-file or $LYNX_CA_FILE, --token-file or $LYNX_TOKEN_FILE, in place of the context's.
ServerAddress FindServer(const ConnectionFlags& flags);

}  // namespace lynx

#endif  // LYNX_CLI_LOCAL_FIND_SERVER_H_
