#include "cli/connect/authority_renewal.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "security/certificate.h"
#include "security/context_file.h"

namespace lynx::cli {

std::string RenewAuthority(Client& client, const std::string& context_file, Nanos now) {
  absl::StatusOr<ClientContext> context = ReadContextFile(context_file);
  if (!context.ok() || context->authority.empty()) return "";
  const absl::StatusOr<CertificateFacts> facts = ReadCertificate(context->authority);
  if (!facts.ok() || RotationTime(*facts) > now) return "";
  const absl::StatusOr<v1::WhoAmIResponse> me = client.ReadAdmin(&v1::Admin::Stub::WhoAmI, v1::WhoAmIRequest());
  if (!me.ok()) return "";
  const std::optional<std::string> successor = SuccessorOf(context->authority, me->authority());
  if (!successor.has_value()) return "";
  context->authority = *successor;
  // The file of the context in use is reached through a link. The file behind the link is replaced, and the link stays.
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(context_file, error);
  const absl::Status written = WriteContextFile(error ? context_file : file.string(), *context);
  if (written.ok())
    return absl::StrCat("the certificate of the cluster's authority was renewed; ", context_file, " has it now");
  return absl::StrCat("the certificate of the cluster's authority was renewed, and cannot be written to ", context_file, ": ",
                      std::string(written.message()), "; when the old one ends, this file no longer works");
}

}  // namespace lynx::cli
