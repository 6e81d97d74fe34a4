// In place of code for sm_90a, where the architectures of a build have none.
#include <string>

#include "cuda/sm90a/bind.h"

namespace roofline::cuda {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw Unsupported(std::string(what) +
                    ": this build has no code for sm_90a; rebuild on this machine, or with CUDAARCHS naming 90");
}

}  // namespace

Bound bind_attention_warp_specialized(const ops::Attention&, Device&) { refuse("attention warp_specialized"); }
std::optional<Bound> bind_mla_decode_wgmma(const ops::MlaDecode&, Device&) { return {}; }
Bound bind_mma_wgmma(const ops::Mma&, Device&) { refuse("mma wgmma"); }

}  // namespace roofline::cuda
