// See context_file.h.
#include "security/context_file.h"

#include <nlohmann/json.hpp>

#include "common/status.h"
#include "common/utf8.h"
#include "security/secret.h"

namespace lynx {

using nlohmann::json;

absl::Status WriteContextFile(const std::string& path, const ClientContext& context) {
  const std::pair<const char*, const std::string&> texts[] = {
      {"server", context.server}, {"authority", context.authority}, {"token", context.token}};
  for (const auto& [name, text] : texts) {
    if (ValidUtf8Prefix(text) == text.size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the ", name, " for ", path, " is not UTF-8: '", VisibleLine(text), "'; give another"));
  }
  const json root = {{"server", context.server}, {"authority", context.authority}, {"token", context.token}};
  return WriteSecretFile(path, root.dump(1) + "\n");
}

absl::StatusOr<ClientContext> ReadContextFile(const std::string& path) {
  LYNX_ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(path));
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_text = [&](const char* key) { return root.contains(key) && root.at(key).is_string(); };
  if (!root.is_object() || !is_text("server") || !is_text("authority") || !is_text("token")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     " is not a context file: a JSON object with the texts server, authority and token, as 'lynxctl admin user "
                     "add --context-file' writes it"));
  }
  return ClientContext{root.at("server"), root.at("authority"), root.at("token")};
}

}  // namespace lynx
