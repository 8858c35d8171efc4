// Fields of a job file that read and print one number, word or switch of a JobSpec. `owner` returns the struct, or the member,
// that a field sets. The functions are pure and thread-safe.
#ifndef LYNX_CLI_SPEC_JOB_FIELD_KINDS_H_
#define LYNX_CLI_SPEC_JOB_FIELD_KINDS_H_

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/spec/job_fields.h"
#include "cli/spec/scalar_text.h"

namespace lynx::cli {

// A whole number. If `zero_word` is not empty, the text of 0 is this word, such as "auto".
template <class Owner, class Member>
JobField IntField(std::string path, std::string meaning, bool required, Owner owner, Member member,
                  std::string zero_word = "") {
  return {path,
          meaning,
          required,
          [=](const std::string& text, JobSpec& spec) {
            auto& target = owner(spec).*member;
            if (!zero_word.empty() && text == zero_word) {
              target = 0;
              return absl::OkStatus();
            }
            return ReadInt(text, target);
          },
          [=](const JobSpec& spec) {
            const auto value = owner(const_cast<JobSpec&>(spec)).*member;
            return value == 0 && !zero_word.empty() ? zero_word : absl::StrCat(value);
          },
          nullptr,
          ScalarKind::kInteger,
          zero_word.empty() ? std::vector<std::string>() : std::vector<std::string>{zero_word}};
}

template <class Owner>
JobField DoubleField(std::string path, std::string meaning, Owner owner) {
  return {path,
          meaning,
          false,
          [=](const std::string& text, JobSpec& spec) { return ReadReal(text, owner(spec)); },
          [=](const JobSpec& spec) { return RealText(owner(const_cast<JobSpec&>(spec))); },
          nullptr,
          ScalarKind::kReal};
}

template <class Owner>
JobField EnumField(std::string path, std::string meaning, std::string choices, Owner owner) {
  return {path,
          absl::StrCat(meaning, ": ", choices),
          false,
          [=](const std::string& text, JobSpec& spec) {
            return ParseEnum(text, owner(spec)) ? absl::OkStatus() : Expected(choices, text);
          },
          [=](const JobSpec& spec) { return std::string(EnumName(owner(const_cast<JobSpec&>(spec)))); },
          nullptr,
          ScalarKind::kText,
          absl::StrSplit(absl::StrReplaceAll(choices, {{" or ", ", "}}), ", ")};
}

template <class Owner>
JobField BoolField(std::string path, std::string meaning, Owner owner) {
  return {path,
          absl::StrCat(meaning, ": true or false"),
          false,
          [=](const std::string& text, JobSpec& spec) { return ReadSwitch(text, owner(spec)); },
          [=](const JobSpec& spec) { return std::string(owner(const_cast<JobSpec&>(spec)) ? "true" : "false"); },
          nullptr,
          ScalarKind::kBoolean,
          {"on", "off"}};
}

// A field whose text is "auto" or a text that a BoolField accepts.
template <class Owner>
JobField ChoiceField(std::string path, std::string meaning, Owner owner) {
  return {path,
          absl::StrCat(meaning, ": auto, off or on"),
          false,
          [=](const std::string& text, JobSpec& spec) {
            bool on = false;
            if (ParseEnum(text, owner(spec))) return absl::OkStatus();
            if (!ReadSwitch(text, on).ok()) return Expected("auto, off or on", text);
            owner(spec) = on ? Choice::kOn : Choice::kOff;
            return absl::OkStatus();
          },
          [=](const JobSpec& spec) { return std::string(EnumName(owner(const_cast<JobSpec&>(spec)))); },
          nullptr,
          ScalarKind::kBoolean,
          {"auto", "off", "on"}};
}

}  // namespace lynx::cli

#endif  // LYNX_CLI_SPEC_JOB_FIELD_KINDS_H_
