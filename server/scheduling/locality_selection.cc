// See locality_selection.h.
#include "server/scheduling/locality_selection.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/network_domain.h"

namespace lynx::server {
namespace {

// The highest rate of each kind of nodes except the fastest, descending. Between two kinds there is a clear gap. Nearly always
// all nodes are of one kind, and the result is empty.
std::vector<int64_t> RatesOfSlowerKinds(const std::vector<NodeDevices>& nodes) {
  const auto clearly_faster = [](int64_t a, int64_t b) {
    return static_cast<double>(a) * 100 > static_cast<double>(b) * kFasterPercent;
  };
  int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
  for (const NodeDevices& node : nodes) {
    if (node.flops_per_second <= 0) continue;
    least = std::min(least, node.flops_per_second);
    most = std::max(most, node.flops_per_second);
  }
  if (most == 0 || !clearly_faster(most, least)) return {};
  std::vector<int64_t> rates;
  for (const NodeDevices& node : nodes) {
    if (node.flops_per_second > 0) rates.push_back(node.flops_per_second);
  }
  std::sort(rates.rbegin(), rates.rend());
  std::vector<int64_t> slower;
  for (size_t i = 1; i < rates.size(); ++i) {
    if (clearly_faster(rates[i - 1], rates[i])) slower.push_back(rates[i]);
  }
  return slower;
}

class ComesBefore {
 public:
  explicit ComesBefore(const std::vector<NodeDevices>& nodes) : slower_kinds_(RatesOfSlowerKinds(nodes)) {}

  bool operator()(const NodeDevices& a, const NodeDevices& b) const {
    const int order = a.domain == b.domain ? 0 : CompareDomains(a.domain, b.domain);
    if (order != 0) return order < 0;
    if (a.slow != b.slow) return b.slow;
    const auto kind_of_a = KindOf(a), kind_of_b = KindOf(b);
    return kind_of_a != kind_of_b ? kind_of_a < kind_of_b : a.node < b.node;
  }

 private:
  // 0: the fastest kind. A node whose rate is unknown counts as one of the slowest kind.
  std::ptrdiff_t KindOf(const NodeDevices& node) const {
    return std::count_if(slower_kinds_.begin(), slower_kinds_.end(),
                         [&](int64_t rate) { return node.flops_per_second <= rate; });
  }

  std::vector<int64_t> slower_kinds_;
};

class Chooser {
 public:
  Chooser(const std::vector<NodeDevices>& nodes, const Capacity& capacity) : nodes_(nodes), chosen_(nodes.size(), false) {
    before_.push_back(0);
    for (const NodeDevices& node : nodes) before_.push_back(before_.back() + capacity(node));
  }

  // Chooses among the nodes [begin, end), which have the same domain parts down to `depth`.
  void Choose(size_t begin, size_t end, size_t depth, int64_t needed) {
    if (needed <= 0) return;
    const bool equally_close = nodes_[begin].domain == nodes_[end - 1].domain;
    if (equally_close || depth == kMaxDomainParts) return TakeFirst(begin, end, needed);
    std::vector<Part> parts = PartsOf(begin, end, depth);
    while (needed > 0 && !parts.empty()) {
      const auto next = Best(parts, depth, needed);
      const int64_t taken = std::min(needed, Offers(*next));
      Choose(next->begin, next->end, depth + 1, taken);
      needed -= taken;
      parts.erase(next);
    }
  }

  std::vector<NodeDevices> chosen() const {
    std::vector<NodeDevices> result;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (chosen_[i]) result.push_back(nodes_[i]);
    }
    return result;
  }

 private:
  struct Part {
    size_t begin = 0, end = 0;
  };

  int64_t Offers(const Part& part) const { return before_[part.end] - before_[part.begin]; }

  std::vector<Part> PartsOf(size_t begin, size_t end, size_t depth) const {
    std::vector<Part> parts;
    for (size_t i = begin; i < end; ++i) {
      const bool same = i > begin && nodes_[i].domain == nodes_[i - 1].domain;
      const bool first =
          parts.empty() || (!same && DomainPart(nodes_[i].domain, depth) != DomainPart(nodes_[i - 1].domain, depth));
      if (first) parts.push_back({i, i});
      parts.back().end = i + 1;
    }
    return parts;
  }

  // The best part to choose from. If some parts offer `needed`, it is the part with the deepest inner part that still offers
  // `needed`, because the nodes of that inner part are closest together. If several parts have equally deep ones, the smallest
  // of these parts is best. If no part offers `needed`, it is the largest part.
  std::vector<Part>::iterator Best(std::vector<Part>& parts, size_t depth, int64_t needed) const {
    std::vector<std::pair<size_t, int64_t>> worth;
    for (const Part& part : parts) {
      const int64_t offers = Offers(part);
      worth.emplace_back(offers >= needed ? 1 + Closest(part, depth + 1, needed) : 0, offers >= needed ? -offers : offers);
    }
    return parts.begin() + (std::max_element(worth.begin(), worth.end()) - worth.begin());
  }

  // The depth of the innermost part within this one that still offers `needed`.
  size_t Closest(const Part& part, size_t depth, int64_t needed) const {
    if (depth == kMaxDomainParts || nodes_[part.begin].domain == nodes_[part.end - 1].domain) return kMaxDomainParts;
    size_t deepest = depth;
    for (const Part& inner : PartsOf(part.begin, part.end, depth)) {
      if (Offers(inner) >= needed) deepest = std::max(deepest, Closest(inner, depth + 1, needed));
    }
    return deepest;
  }

  void TakeFirst(size_t begin, size_t end, int64_t needed) {
    for (size_t i = begin; i < end && needed > 0; ++i) {
      const int64_t offers = before_[i + 1] - before_[i];
      chosen_[i] = offers > 0;
      needed -= offers;
    }
  }

  const std::vector<NodeDevices>& nodes_;
  std::vector<bool> chosen_;
  std::vector<int64_t> before_;  // before_[i]: what the nodes before node i offer together
};

}  // namespace

void SortByLocality(std::vector<NodeDevices>& nodes) {
  const ComesBefore comes_before(nodes);
  if (!std::is_sorted(nodes.begin(), nodes.end(), comes_before)) std::sort(nodes.begin(), nodes.end(), comes_before);
}

std::vector<NodeDevices> SelectByLocality(const std::vector<NodeDevices>& nodes, int64_t needed, const Capacity& capacity) {
  Chooser chooser(nodes, capacity);
  if (!nodes.empty()) chooser.Choose(0, nodes.size(), 0, needed);
  return chooser.chosen();
}

}  // namespace lynx::server
