// NCCL on the host: the part of its interface that worker/collectives/nccl_communicator.cc uses. The transfers are between the
// devices of the test's threads (scheduler.h). When a stream reaches a transfer, the transfer reads the data to send. The
// transfer is done when the streams of all members have reached it. So if a peer never comes, the transfer waits until it is
// aborted.
//
// Calls block, and they are strict. The call that makes a communicator returns when all members have made it, and the first
// send or receive between the ranks of a communicator returns when all have started it. The sends and receives of a group are
// one transfer of all members. Only an abort by another thread ends these calls earlier, or ReleaseCalls. A communicator that
// is aborted in a group is freed at the end of the group; no call of it may then be under way. The members' calls must match.
// If a call is not allowed in the present state of a communicator, the test ends.
#ifndef LYNX_TESTS_CUDA_ON_HOST_NCCL_H_
#define LYNX_TESTS_CUDA_ON_HOST_NCCL_H_

#include <climits>
#include <cstddef>
#include <cstdint>

#include "cuda_runtime.h"

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t { ncclFloat32 = 7, ncclBfloat16 = 9 };
enum ncclRedOp_t { ncclSum = 0 };
struct ncclUniqueId {
  char internal[128];
};
using ncclComm_t = struct NcclOnHostComm*;

struct ncclConfig_t {
  int blocking, minCTAs, maxCTAs;
};
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_INITIALIZER \
  { NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT }

namespace lynx::worker::cuda_on_host {

// Sets the transfer that fails: the k-th that is issued from now on, by any member of any communicator. For this member it
// never ends, and the member's communicator reports `error`. 0: all transfers end.
void FailTransfer(int64_t k, ncclResult_t error);
// Returns the number of transfers issued since the last call. A transfer counts once for each member that issued it.
int64_t TransfersIssued();
// Returns the configuration of the newest communicator.
ncclConfig_t NewestConfig();
// From now on, the first transfer between the two ranks of a pair does not come to an end on this rank of the pair, as if its
// machine was stopped. -1: all transfers end.
void HoldConnections(int rank);
// From now on, aborts of a group do not end, as if a peer on the same node was stopped. false: aborts end.
void HoldAborts(bool hold);
// Lets all calls that wait for another member return an error, and waits until they have returned. Call it when no test uses
// a communicator.
void ReleaseCalls();
// Returns the number of communicators that exist: they are neither destroyed nor aborted.
int64_t LiveCommunicators();

}  // namespace lynx::worker::cuda_on_host

const char* ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int members, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);

#endif  // LYNX_TESTS_CUDA_ON_HOST_NCCL_H_
