// Runs the tests of the engine on a real device.
#include "tests/worker/backend/cuda_device.h"

int main(int argc, char** argv) { return lynx::worker::RunTestsOnDevice(argc, argv); }
