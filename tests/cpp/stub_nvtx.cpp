// A profiler as NVTX sees one: a library named in NVTX_INJECTION64_PATH, which puts its own functions into NVTX's table.
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

namespace {
std::vector<std::string> said;
int push(const char* name) { return said.push_back(std::string("push ") + name), 0; }
int pop() { return said.push_back("pop"), 0; }
}  // namespace

extern "C" __attribute__((visibility("default"))) std::vector<std::string>* stub_nvtx() { return &said; }

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) || size <= NVTX_CBID_CORE_RangePop)
    return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
