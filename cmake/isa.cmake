# Kernel files are compiled once per instruction set, each with its own flags and its own ROOFLINE_ISA.
#
# No -ffast-math (it breaks range reduction), no LTO and no -march=native: the module picks a set when it runs.

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(ROOFLINE_FLAGS_scalar -march=x86-64-v2 -DROOFLINE_SCALAR -fno-tree-vectorize -fno-tree-slp-vectorize)
  set(ROOFLINE_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(ROOFLINE_FLAGS_avx512 -march=x86-64-v4)
  set(ROOFLINE_FLAGS_avx512_vnni -march=x86-64-v4 -mavx512vnni)
  set(ROOFLINE_FLAGS_avx512_bf16 ${ROOFLINE_FLAGS_avx512_vnni} -mavx512bf16)
  set(ROOFLINE_FLAGS_avx512_fp16 ${ROOFLINE_FLAGS_avx512_bf16} -mavx512fp16)
  set(ROOFLINE_FLAGS_amx ${ROOFLINE_FLAGS_avx512_bf16} -mavx512vbmi -mamx-tile -mamx-bf16 -mamx-int8)
  set(ROOFLINE_ISAS scalar avx2 avx512)
else()
  set(ROOFLINE_FLAGS_scalar -DROOFLINE_SCALAR -fno-tree-vectorize -fno-tree-slp-vectorize)
  set(ROOFLINE_FLAGS_neon "")
  set(ROOFLINE_FLAGS_neon_dotprod_fp16 -march=armv8.2-a+dotprod+fp16)
  set(ROOFLINE_FLAGS_neon_bf16_i8mm -march=armv8.2-a+dotprod+fp16+bf16+i8mm)
  set(ROOFLINE_ISAS scalar neon)
endif()

# roofline_kernels(<isa> <operator>...): compile csrc/cpu/<operator>_kernels.cpp for one instruction set.
function(roofline_kernels isa)
  list(TRANSFORM ARGN REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/csrc/cpu/\\1_kernels.cpp" OUTPUT_VARIABLE files)
  add_library(roofline_${isa} OBJECT ${files})
  target_include_directories(roofline_${isa} PRIVATE csrc)
  target_compile_definitions(roofline_${isa} PRIVATE ROOFLINE_ISA=${isa})
  # Of the sanitizers' builds (Debug) nobody wants speed, and unrolled loops take them minutes.
  target_compile_options(roofline_${isa} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O3> -Wall -Wextra ${ROOFLINE_FLAGS_${isa}})
  if(isa IN_LIST ROOFLINE_UNSANITIZED)
    target_compile_options(roofline_${isa} PRIVATE -fno-sanitize=all)
  endif()
  set_target_properties(roofline_${isa} PROPERTIES CXX_STANDARD 17)
  target_sources(roofline_core PRIVATE $<TARGET_OBJECTS:roofline_${isa}>)
endfunction()

# Every kernel file, but for those of single sets below.
file(GLOB kernels CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/csrc/cpu csrc/cpu/*_kernels.cpp)
list(FILTER kernels EXCLUDE REGEX "_(amx|pairs|quads)_kernels")
list(TRANSFORM kernels REPLACE "_kernels\\.cpp$" "")
foreach(isa IN LISTS ROOFLINE_ISAS)
  roofline_kernels(${isa} ${kernels})
endforeach()

# roofline_extra_kernels(<isa> <instruction> <operator>...): the same where the compiler and its assembler know the set, which is
# newer than what they must be; ROOFLINE_HAVE_<isa> then says so to the lists of kernels.
include(CheckCXXSourceCompiles)
function(roofline_extra_kernels isa instruction)
  list(JOIN ROOFLINE_FLAGS_${isa} " " CMAKE_REQUIRED_FLAGS)
  check_cxx_source_compiles("int main() { asm volatile(\"${instruction}\"); }" ROOFLINE_COMPILES_${isa})
  if(ROOFLINE_COMPILES_${isa})
    roofline_kernels(${isa} ${ARGN})
    target_compile_definitions(roofline_core PUBLIC ROOFLINE_HAVE_${isa})
    set(ROOFLINE_EXTRA_ISAS ${ROOFLINE_EXTRA_ISAS} ${isa} PARENT_SCOPE)
  endif()
endfunction()

option(ROOFLINE_EMULATE_AMX "Run the kernels of AMX over an emulation: tests on CPUs without it (needs SIMDe)" OFF)
if("avx512" IN_LIST ROOFLINE_ISAS)
  roofline_extra_kernels(avx512_vnni "vpdpbusd %zmm0, %zmm1, %zmm2" fma gemm_quads quantized)
  roofline_extra_kernels(avx512_bf16 "vdpbf16ps %zmm0, %zmm1, %zmm2" fma attention_pairs backward_pairs decode_pairs gemm_pairs rows)
  # Every CPU whose products of pairs pay has VBMI too.
  set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/csrc/cpu/decode_pairs_kernels.cpp APPEND PROPERTY COMPILE_OPTIONS -mavx512vbmi)
  roofline_extra_kernels(avx512_fp16 "vfmadd231ph %zmm0, %zmm1, %zmm2" fma)
  set(amx_kernels attention_amx backward_amx fma_amx gemm_amx quantized_amx)
  if(ROOFLINE_EMULATE_AMX)
    set(tests ${CMAKE_CURRENT_SOURCE_DIR}/tests/cpp)
    set(ROOFLINE_FLAGS_amx -O1 -mavx2 -mfma -mf16c -Wno-psabi "SHELL:-DROOFLINE_SIMDE -include ${tests}/simde_avx512.h"
      "SHELL:-DROOFLINE_AMX_EMULATED -include ${tests}/amx_emulation.h")
    roofline_kernels(amx ${amx_kernels})
    target_compile_definitions(roofline_core PUBLIC ROOFLINE_HAVE_amx PRIVATE ROOFLINE_AMX_EMULATED)
    list(APPEND ROOFLINE_EXTRA_ISAS amx)
  else()
    roofline_extra_kernels(amx "tdpbf16ps %tmm0, %tmm1, %tmm2" ${amx_kernels})
  endif()
else()
  roofline_extra_kernels(neon_dotprod_fp16 "sdot v0.4s, v1.16b, v2.16b" fma)
  roofline_extra_kernels(neon_bf16_i8mm "bfmmla v0.4s, v1.8h, v2.8h" fma)
endif()
