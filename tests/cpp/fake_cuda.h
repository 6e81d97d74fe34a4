// A CUDA runtime that has no GPU: memory is the host's, launches are done at once, and any call can be made to fail. Linked in
// place of NVIDIA's, it shows what the backend does with every error, and what it leaves behind.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace fake {

struct Failure {
  cudaError_t code = cudaSuccess;
  int after = 0;        // calls that still succeed
  bool sticky = false;  // every later call fails with it
};

struct Runtime {
  int devices = 1;
  int capability = 90;
  std::size_t total_bytes = std::size_t{4} << 30, used_bytes = 0;
  std::map<void*, std::size_t> allocations;
  int streams = 0, events = 0, pinned = 0, graphs = 0;  // alive
  int current = 0;  // the device that was set last
  long empty_launches = 0, synchronised = 0, graph_nodes = 0;
  bool peer_access = true;
  long mallocs = 0;
  double clock_s = 0;                       // what events record; work advances it
  std::map<std::string, Failure> failures;  // by the name of the call
  std::map<const void*, int> dynamic_shared;  // of kernels that were allowed more, or less, than 48 KB
  std::map<const void*, cudaPointerAttributes> pointers;  // of others; memory of ours is found by itself
  std::vector<std::string> order;  // events recorded and waited for, gates: "event 1 on stream 7", "stream 9 after event 1"
  bool gate_times_out = false;
  const volatile int* gate = nullptr;  // where the last one looks whether it is open, and says that it gave up
  volatile int* gave_up = nullptr;
  std::vector<cudaEvent_t> unfinished;  // recorded, and not waited for
  std::set<const void*> loaded;  // graphs and what else is loaded before it first runs
  cudaError_t last = cudaSuccess, lost = cudaSuccess;
};

// A call that waits until the GPU is idle: behind a closed gate, until that gives up.
void waits();
// What runs for the first time is loaded before, and that waits.
void loads(const void* what);

Runtime& runtime();
void reset();  // as if the process had just begun; live allocations are forgotten

}  // namespace fake
