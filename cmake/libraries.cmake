# CPU libraries are opened when the module runs (csrc/cpu/library.cpp). The build needs oneDNN's headers only: OpenBLAS's few
# prototypes are declared in library.h.
#
# The headers come from the build environment's PyPI package onednn-devel-cpu-gomp, else from the system (libdnnl-dev). Without
# them the build goes on and oneDNN is missing at run time, with the reason.

set(ROOFLINE_ONEDNN_INCLUDE "")

# The packages of an isolated build are visible to its own interpreter only.
if(NOT Python_EXECUTABLE)
  find_package(Python COMPONENTS Interpreter QUIET)
endif()
if(Python_EXECUTABLE)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c [[
import importlib.metadata
for file in importlib.metadata.distribution("onednn-devel-cpu-gomp").files or ():
    if file.parts[-3:] == ("oneapi", "dnnl", "dnnl.h") and file.locate().is_file():
        print(file.locate().resolve().parents[2], end="")
]]
    OUTPUT_VARIABLE ROOFLINE_ONEDNN_INCLUDE ERROR_QUIET)
endif()
if(NOT ROOFLINE_ONEDNN_INCLUDE)
  find_path(ROOFLINE_ONEDNN_SYSTEM_INCLUDE oneapi/dnnl/dnnl.h NO_CACHE)
  if(ROOFLINE_ONEDNN_SYSTEM_INCLUDE)
    set(ROOFLINE_ONEDNN_INCLUDE "${ROOFLINE_ONEDNN_SYSTEM_INCLUDE}")
  endif()
endif()

set(roofline_onednn_sources csrc/cpu/bmm.cpp csrc/cpu/gemm.cpp csrc/cpu/library.cpp)
if(ROOFLINE_ONEDNN_INCLUDE)
  message(STATUS "oneDNN headers: ${ROOFLINE_ONEDNN_INCLUDE}")
  set_property(SOURCE ${roofline_onednn_sources} APPEND PROPERTY INCLUDE_DIRECTORIES "${ROOFLINE_ONEDNN_INCLUDE}")
  set_property(SOURCE ${roofline_onednn_sources} APPEND PROPERTY COMPILE_DEFINITIONS ROOFLINE_HAVE_ONEDNN_HEADERS)
else()
  message(STATUS "oneDNN: built without its headers (neither onednn-devel-cpu-gomp nor libdnnl-dev was there)")
endif()
