// Opening NCCL: where the file is, and whether it is one that is understood.
#include "cuda/libraries/nccl.h"

#include "cuda/libraries/opened.h"

namespace roofline::cuda {
namespace {

constexpr int kOldest = 21000;  // 2.10.0, the first with bf16

Nccl open_one(const std::string& file) {
  SharedObject from(file);
  Nccl library;
  from.take(library.get_version, "ncclGetVersion");
  from.take(library.error_string, "ncclGetErrorString");
  from.take(library.comm_init_all, "ncclCommInitAll");
  from.take(library.group_start, "ncclGroupStart");
  from.take(library.group_end, "ncclGroupEnd");
  from.take(library.all_reduce, "ncclAllReduce");
  from.take(library.all_gather, "ncclAllGather");
  from.take(library.reduce_scatter, "ncclReduceScatter");
  from.take(library.send, "ncclSend");
  from.take(library.receive, "ncclRecv");
  int version = 0;
  if (library.get_version(&version) != nccl::success) throw Unsupported("it does not tell its version");
  library.version = version_text(version);
  if (version < kOldest)
    throw Unsupported("it is version " + library.version + "; " + version_text(kOldest) + " and newer have bf16");
  library.path = SharedObject::path_of(library.all_reduce);
  from.keep();
  return library;
}

}  // namespace

void set_nccl_path(const std::string& path) { opened<Nccl>().prefer("nccl", path); }

Nccl open_nccl(const std::vector<std::string>& files) {
  return open_first("NCCL", "install it with: pip install nvidia-nccl-cu13 (or libnccl2)", files, open_one);
}

const Nccl& nccl_library() { return opened<Nccl>().get("libnccl.so.2", open_nccl); }

LibraryInfo nccl_info() { return info_of("nccl", nccl_library); }

void check(const Nccl& library, nccl::Status status, const char* call) {
  if (status != nccl::success)
    throw Error("NCCL " + library.version + ": " + call + ": " + library.error_string(status) + "; NCCL_DEBUG=WARN says more");
}

}  // namespace roofline::cuda
