// A shared library with NCCL's names for the fake runtime, where every GPU's memory is the host's: a group's calls are gathered,
// and done when it ends, over all ranks at once as NCCL's reference says.
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/libraries/nccl.h"
#include "fake_elements.h"

using namespace roofline::cuda::nccl;

namespace roofline::cuda::nccl {
struct CommOpaque {
  int rank, ranks;
};
}  // namespace roofline::cuda::nccl

namespace {

enum class Kind { all_reduce, all_gather, reduce_scatter, send, receive };
struct Call {
  Kind kind;
  const char* from;
  char* to;
  std::size_t count;
  Type type;
  int rank, peer;
};
std::vector<Call> group;
bool open = false;
int failing = 0;  // calls of ncclAllReduce until one fails; 0: none

roofline::DType dtype_of(Type type) {
  using roofline::DType;
  return type == fp64   ? DType::fp64
         : type == fp32 ? DType::fp32
         : type == fp16 ? DType::fp16
         : type == bf16 ? DType::bf16
                        : DType::int8;
}
std::size_t size_of(Type type) { return static_cast<std::size_t>(roofline::size_bytes(dtype_of(type))); }

// The sums of elements [first, first + count) over the calls of all ranks.
std::vector<char> summed(const std::vector<Call>& calls, std::size_t first, std::size_t count) {
  const std::size_t each = size_of(calls[0].type);
  std::vector<char> made(count * each);
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (const Call& call : calls) sum += fake::element(dtype_of(call.type), call.from, first + i);
    fake::set(dtype_of(calls[0].type), made.data(), i, sum);
  }
  return made;
}

Status add(Call call) {
  if (!open) return invalid_argument;
  group.push_back(call);
  return success;
}

}  // namespace

extern "C" {

void stub_nccl_fail_after(int calls) { failing = calls; }

Status ncclGetVersion(int* version) { return *version = 22703, success; }
const char* ncclGetErrorString(Status status) { return status == system_error ? "a system call failed" : "something else"; }
Status ncclCommInitAll(Comm* comms, int ranks, const int*) {
  for (int r = 0; r < ranks; ++r) comms[r] = new CommOpaque{r, ranks};
  return success;
}
Status ncclGroupStart() { return open = true, group.clear(), success; }
Status ncclAllReduce(const void* from, void* to, std::size_t count, Type type, Operation, Comm comm, CUstream_st*) {
  if (failing > 0 && --failing == 0) return system_error;
  return add({Kind::all_reduce, static_cast<const char*>(from), static_cast<char*>(to), count, type, comm->rank, 0});
}
Status ncclAllGather(const void* from, void* to, std::size_t count, Type type, Comm comm, CUstream_st*) {
  return add({Kind::all_gather, static_cast<const char*>(from), static_cast<char*>(to), count, type, comm->rank, 0});
}
Status ncclReduceScatter(const void* from, void* to, std::size_t count, Type type, Operation, Comm comm, CUstream_st*) {
  return add({Kind::reduce_scatter, static_cast<const char*>(from), static_cast<char*>(to), count, type, comm->rank, 0});
}
Status ncclSend(const void* from, std::size_t count, Type type, int peer, Comm comm, CUstream_st*) {
  return add({Kind::send, static_cast<const char*>(from), nullptr, count, type, comm->rank, peer});
}
Status ncclRecv(void* to, std::size_t count, Type type, int peer, Comm comm, CUstream_st*) {
  return add({Kind::receive, nullptr, static_cast<char*>(to), count, type, comm->rank, peer});
}

Status ncclGroupEnd() {
  open = false;
  if (group.empty()) return success;
  const Type type = group[0].type;
  const std::size_t each = size_of(type), count = group[0].count;
  switch (group[0].kind) {
    case Kind::all_reduce: {
      const std::vector<char> sum = summed(group, 0, count);
      for (const Call& call : group) std::memcpy(call.to, sum.data(), sum.size());
      break;
    }
    case Kind::reduce_scatter: {
      std::vector<std::vector<char>> parts;
      for (const Call& call : group) parts.push_back(summed(group, static_cast<std::size_t>(call.rank) * count, count));
      for (std::size_t i = 0; i < group.size(); ++i) std::memcpy(group[i].to, parts[i].data(), parts[i].size());
      break;
    }
    case Kind::all_gather:
      for (const Call& to : group)
        for (const Call& from : group)
          std::memcpy(to.to + static_cast<std::size_t>(from.rank) * count * each, from.from, count * each);
      break;
    default:
      for (const Call& send : group)
        for (const Call& receive : group)
          if (send.kind == Kind::send && receive.kind == Kind::receive && send.rank == receive.peer && send.peer == receive.rank)
            std::memcpy(receive.to, send.from, send.count * each);
  }
  return success;
}

}  // extern "C"
