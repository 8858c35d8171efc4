#include "agent/agent_profile.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lynx::agent {
namespace {

bool Has(const std::vector<ShapeTimes>& measured, const LayerShape& shape) {
  return std::any_of(measured.begin(), measured.end(), [&](const ShapeTimes& times) { return times.shape == shape; });
}

std::string ShapeText(const LayerShape& shape) {
  return absl::StrCat("micro_batch ", shape.micro_batch, ", seq ", shape.seq, ", hidden ", shape.hidden, ", heads ",
                      shape.heads, ", ffn ", shape.ffn, ", vocab ", shape.vocab, ", tp ", shape.tp);
}

}  // namespace

void AgentProfile::SetWanted(const std::vector<LayerShape>& shapes) {
  wanted_.assign(shapes.begin(), shapes.begin() + static_cast<std::ptrdiff_t>(std::min(shapes.size(), kMaxShapes)));
  std::erase_if(failed_,
                [&](const auto& entry) { return std::find(wanted_.begin(), wanted_.end(), entry.first) == wanted_.end(); });
}

std::optional<MeasureTask> AgentProfile::Next() const {
  if (!link_tried_) return MeasureTask{.kind = MeasureTaskKind::kLink};
  if (!gpu_links_tried_) return MeasureTask{.kind = MeasureTaskKind::kGpuLinks};
  if (!rates_tried_) return MeasureTask{.kind = MeasureTaskKind::kRates};
  for (const LayerShape& shape : wanted_) {
    if (!Has(measured_, shape) && !failed_.contains(shape)) {
      return MeasureTask{.kind = MeasureTaskKind::kShape, .shape = shape};
    }
  }
  return std::nullopt;
}

void AgentProfile::RecordLink(const absl::StatusOr<LinkResult>& result) {
  link_tried_ = true;
  if (result.ok()) {
    link_ = *result;
  } else {
    link_failure_ = std::string(result.status().message());
  }
}

void AgentProfile::RecordGpuLinks(const absl::StatusOr<GpuLinksResult>& result) {
  gpu_links_tried_ = true;
  if (result.ok()) {
    gpu_links_ = *result;
  } else {
    gpu_links_failure_ = std::string(result.status().message());
  }
}

void AgentProfile::RecordDevices(const MeasureTask& task, const absl::StatusOr<MeasureResult>& result) {
  rates_tried_ = true;
  if (result.ok()) Learn(*result);
  if (task.kind == MeasureTaskKind::kRates) {
    if (!result.ok()) rates_failure_ = std::string(result.status().message());
    return;
  }
  if (!result.ok()) {
    failed_[task.shape] = std::string(result.status().message());
  } else if (!Has(measured_, task.shape)) {
    failed_[task.shape] = "was not measured within the time allowed";
  }
}

void AgentProfile::Learn(const MeasureResult& result) {
  rates_failure_.clear();
  // Keeps the first rates: a profile should not change without cause, because plans use its times.
  if (!rates_.has_value()) rates_ = result;
  for (const ShapeTimes& times : result.measured) {
    if (!Has(measured_, times.shape)) measured_.push_back(times);
  }
  while (measured_.size() > kMaxShapes) {
    const auto unwanted = std::find_if(measured_.begin(), measured_.end(), [&](const ShapeTimes& times) {
      return std::find(wanted_.begin(), wanted_.end(), times.shape) == wanted_.end();
    });
    measured_.erase(unwanted != measured_.end() ? unwanted : measured_.begin());
  }
}

std::optional<HardwareProfile> AgentProfile::Profile() const {
  if (!rates_.has_value()) return std::nullopt;
  HardwareProfile profile{.device_kind = rates_->device_kind,
                          .measured = measured_,
                          .flops_per_second = rates_->flops_per_second,
                          .bfloat16_flops_per_second = rates_->bfloat16_flops_per_second,
                          .memory_bytes_per_second = rates_->memory_bytes_per_second,
                          .op_overhead = rates_->op_overhead,
                          .intra_node = link_.link,
                          .inter_node = link_.link,
                          .host = rates_->host,
                          .overlap_slowdown_permille = link_.overlap_slowdown_permille,
                          .communication_compute_permille = link_.communication_compute_permille};
  if (gpu_links_.has_value()) {
    profile.intra_node = gpu_links_->link;
    profile.inner_links = gpu_links_->inner_links;
    profile.overlap_slowdown_permille = gpu_links_->overlap_slowdown_permille;
    profile.communication_compute_permille = gpu_links_->communication_compute_permille;
  }
  if (inter_node_bytes_per_second_ > 0) profile.inter_node.bytes_per_second = inter_node_bytes_per_second_;
  return profile;
}

Bytes AgentProfile::nccl_memory() const {
  if (!gpu_links_.has_value()) return Bytes(0);
  return gpu_links_->nccl_memory + gpu_links_->route_memory * kMaxRoutes;
}

std::vector<LayerShape> AgentProfile::FailedShapes() const {
  std::vector<LayerShape> shapes;
  for (const auto& [shape, reason] : failed_) shapes.push_back(shape);
  return shapes;
}

std::string AgentProfile::Failure() const {
  std::string text;
  if (!link_failure_.empty()) absl::StrAppend(&text, link_failure_, "; a stated link stands in its place. ");
  if (!gpu_links_failure_.empty()) {
    absl::StrAppend(&text, gpu_links_failure_, "; the link over the node's address stands in their place. ");
  }
  if (!rates_failure_.empty()) absl::StrAppend(&text, rates_failure_, ". ");
  if (!failed_.empty()) {
    const auto& [shape, reason] = *failed_.begin();
    absl::StrAppend(&text, ShapeText(shape), ": ", reason, ". ");
    if (failed_.size() > 1) absl::StrAppend(&text, "And ", failed_.size() - 1, " other shapes. ");
  }
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace lynx::agent
