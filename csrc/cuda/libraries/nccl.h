// NCCL, opened with dlopen on first use. The few prototypes and numbers that are used are declared here, as NVIDIA's reference
// gives them (docs.nvidia.com/deeplearning/nccl), so that its headers need not be there to build.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/backend.h"

struct CUstream_st;

namespace roofline::cuda {

namespace nccl {

using Comm = struct CommOpaque*;

enum Status : int { success = 0, system_error = 2, invalid_argument = 4 };
enum Type : int { int8 = 0, fp16 = 6, fp32 = 7, fp64 = 8, bf16 = 9 };
enum Operation : int { sum = 0 };

}  // namespace nccl

struct Nccl {
  std::string version;  // "2.27.3"
  std::string path;     // of the file that was opened

  nccl::Status (*get_version)(int*) = nullptr;
  const char* (*error_string)(nccl::Status) = nullptr;
  nccl::Status (*comm_init_all)(nccl::Comm*, int ranks, const int* devices) = nullptr;
  nccl::Status (*group_start)() = nullptr;
  nccl::Status (*group_end)() = nullptr;
  nccl::Status (*all_reduce)(const void* from, void* to, std::size_t count, nccl::Type, nccl::Operation, nccl::Comm,
                             CUstream_st*) = nullptr;
  nccl::Status (*all_gather)(const void* from, void* to, std::size_t sent, nccl::Type, nccl::Comm, CUstream_st*) = nullptr;
  nccl::Status (*reduce_scatter)(const void* from, void* to, std::size_t received, nccl::Type, nccl::Operation, nccl::Comm,
                                 CUstream_st*) = nullptr;
  nccl::Status (*send)(const void* from, std::size_t count, nccl::Type, int to_rank, nccl::Comm, CUstream_st*) = nullptr;
  nccl::Status (*receive)(void* to, std::size_t count, nccl::Type, int from_rank, nccl::Comm, CUstream_st*) = nullptr;
};

// The file to open, tried before the one that the process may have loaded already and the system's. Throws Error once it is open.
void set_nccl_path(const std::string& path);

// Throws Unsupported with the reason and the cure; tried again at the next call.
const Nccl& nccl_library();
LibraryInfo nccl_info();

// The same from the first of `files` that can be used.
Nccl open_nccl(const std::vector<std::string>& files);

// Throws an error that names the call.
void check(const Nccl& library, nccl::Status status, const char* call);

}  // namespace roofline::cuda
