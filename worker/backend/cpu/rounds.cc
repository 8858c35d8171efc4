// The ops of rounds: which rows of experts a round takes, and where the gradients of their weights go.
#include <algorithm>

#include "worker/backend/cpu/cpu_backend.h"

namespace lynx::worker::cpu {

void CpuBackend::MostWithoutRoom(const RouteChoice* route, int64_t choices, int32_t* most) {
  // Rows for which an expert has no room have the places -1, -2 and so on.
  int32_t lowest = 0;
  for (int64_t i = 0; i < choices; ++i) lowest = std::min(lowest, route[i].place);
  *most = -lowest;
}

void CpuBackend::RouteOfRound(const RouteChoice* route, int64_t choices, int64_t room, int64_t round, RouteChoice* of_round) {
  for (int64_t i = 0; i < choices; ++i) {
    const int64_t number = -1 - int64_t{route[i].place} - round * room;  // number in this round; below 0 if the row has room
    const bool takes = number >= 0 && number < room;
    of_round[i] = route[i];
    of_round[i].place = takes ? static_cast<int32_t>(route[i].expert * room + number) : -1;
  }
}

void CpuBackend::WeightGradientsOfChoices(const RouteChoice* route, int64_t choices, const float* dweights, float* late) {
  for (int64_t i = 0; i < choices; ++i) {
    if (route[i].place >= 0) late[i] = dweights[route[i].place];
  }
}

}  // namespace lynx::worker::cpu
