# Kernel files are compiled once per instruction set, each with its own flags and its own ROOFLINE_ISA.
#
# No -ffast-math (it breaks range reduction), no LTO and no -march=native: the module picks a set when it runs.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(ROOFLINE_FLAGS_scalar -march=x86-64-v2 -DROOFLINE_SCALAR -fno-tree-vectorize -fno-tree-slp-vectorize)
  set(ROOFLINE_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(ROOFLINE_FLAGS_avx512 -march=x86-64-v4)
  set(ROOFLINE_FLAGS_avx512_bf16 -march=x86-64-v4 -mavx512bf16 -mavx512vnni)
  set(ROOFLINE_ISAS scalar avx2 avx512)
else()
  set(ROOFLINE_FLAGS_scalar -DROOFLINE_SCALAR -fno-tree-vectorize -fno-tree-slp-vectorize)
  set(ROOFLINE_FLAGS_neon "")
  set(ROOFLINE_ISAS scalar neon)
endif()

# roofline_kernels(<isa> <operator>...): compile csrc/cpu/<operator>_kernels.cpp for one instruction set.
function(roofline_kernels isa)
  list(TRANSFORM ARGN REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/csrc/cpu/\\1_kernels.cpp" OUTPUT_VARIABLE files)
  add_library(roofline_${isa} OBJECT ${files})
  target_include_directories(roofline_${isa} PRIVATE csrc)
  target_compile_definitions(roofline_${isa} PRIVATE ROOFLINE_ISA=${isa})
  target_compile_options(roofline_${isa} PRIVATE -O3 -Wall -Wextra ${ROOFLINE_FLAGS_${isa}})
  set_target_properties(roofline_${isa} PROPERTIES CXX_STANDARD 17)
  target_sources(roofline_core PRIVATE $<TARGET_OBJECTS:roofline_${isa}>)
endfunction()

foreach(isa IN LISTS ROOFLINE_ISAS)
  roofline_kernels(${isa} attention fma rows stream)
endforeach()
if("avx512" IN_LIST ROOFLINE_ISAS)
  roofline_kernels(avx512_bf16 fma)
endif()
