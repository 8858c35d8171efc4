// The ops of rounds: which rows of experts a round takes, and where the gradients of their weights go.
#include "worker/backend/cuda/cuda_backend.h"
#include "worker/backend/cuda/elementwise.cuh"

namespace lynx::worker::cuda {
namespace {

// The rows of an expert without room have the places -1, -2 and so on. One block of threads goes through all choices.
__global__ void __launch_bounds__(kBlock) FindMost(const RouteChoice* route, int64_t choices, int32_t* most) {
  int32_t own = 0;
  for (int64_t i = threadIdx.x; i < choices; i += kBlock) own = Max::Of(own, -route[i].place);
  const int32_t all = ReduceBlock<Max>(own);
  if (threadIdx.x == 0) *most = all;
}

struct PlaceInRound {
  const RouteChoice* route;
  int64_t room, round;
  RouteChoice* of_round;

  __device__ void operator()(int64_t i) const {
    RouteChoice choice = route[i];
    const int64_t number = -1 - int64_t{choice.place} - round * room;  // number in this round; below 0 if the row has room
    const bool takes = number >= 0 && number < room;
    choice.place = takes ? static_cast<int32_t>(choice.expert * room + number) : -1;
    of_round[i] = choice;
  }
};

struct TakeGradient {
  const RouteChoice* route;
  const float* dweights;
  float* late;

  __device__ void operator()(int64_t i) const {
    if (route[i].place >= 0) late[i] = dweights[route[i].place];
  }
};

}  // namespace

void CudaBackend::MostWithoutRoom(const RouteChoice* route, int64_t choices, int32_t* most) {
  stream_.Launch("rows without room", &FindMost, dim3(1), dim3(kBlock), route, choices, most);
}

void CudaBackend::RouteOfRound(const RouteChoice* route, int64_t choices, int64_t room, int64_t round, RouteChoice* of_round) {
  ForEach(stream_, "route of round", choices, PlaceInRound{route, room, round, of_round});
}

void CudaBackend::WeightGradientsOfChoices(const RouteChoice* route, int64_t choices, const float* dweights, float* late) {
  ForEach(stream_, "gradients of choices", choices, TakeGradient{route, dweights, late});
}

}  // namespace lynx::worker::cuda
