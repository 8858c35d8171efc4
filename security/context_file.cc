// See context_file.h.
#include "security/context_file.h"

#include <nlohmann/json.hpp>

#include "common/status.h"
#include "security/secret.h"

namespace lynx {

using nlohmann::json;

absl::Status WriteContextFile(const std::string& path, const ClientContext& context) {
  const json root = {{"server", context.server}, {"authority", context.authority}, {"token", context.token}};
  return WriteSecretFile(path, root.dump(1) + "\n");
}

absl::StatusOr<ClientContext> ReadContextFile(const std::string& path) {
  LYNX_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path));
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_text = [&](const char* key) { return root.contains(key) && root.at(key).is_string(); };
  if (!root.is_object() || !is_text("server") || !is_text("authority") || !is_text("token")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a context file: a JSON object with the texts server, authority and token, as 'lynxctl admin user "
                           "add --context-file' writes it"));
  }
  return ClientContext{root.at("server"), root.at("authority"), root.at("token")};
}

}  // namespace lynx
