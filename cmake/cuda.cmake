# The CUDA backend, where there is a compiler for it. Sets, for build_info:
#   ROOFLINE_CUDA_BUILT (ON/OFF), ROOFLINE_CUDA_WHY_NOT, ROOFLINE_CUDA_VERSION, ROOFLINE_CUDA_ARCHS.
#
# AUTO never fails: without a working compiler the backend is left out and the reason recorded. ON without one is an error.

set(ROOFLINE_CUDA_BUILT OFF)
set(ROOFLINE_CUDA_WHY_NOT "")
set(ROOFLINE_CUDA_VERSION "")
set(ROOFLINE_CUDA_ARCHS "")

# An unknown value would add no package and say nothing: stop instead.
if(NOT "${ROOFLINE_CUDA_WHEELS}" MATCHES "^(headers|toolkit)?$")
  message(FATAL_ERROR "ROOFLINE_CUDA_WHEELS='${ROOFLINE_CUDA_WHEELS}': use headers (cuBLAS and NVML headers from PyPI), "
    "toolkit (the compiler too), or leave it empty")
endif()

string(TOUPPER "${ROOFLINE_CUDA}" roofline_cuda)
if(roofline_cuda MATCHES "^(ON|TRUE|YES|1)$")
  set(roofline_cuda ON)
elseif(roofline_cuda MATCHES "^(OFF|FALSE|NO|0)$")
  set(roofline_cuda OFF)
elseif(NOT roofline_cuda MATCHES "^(AUTO)?$")
  message(FATAL_ERROR "ROOFLINE_CUDA='${ROOFLINE_CUDA}': use AUTO, ON or OFF")
endif()

# A Python that sees the build requirements: the one that scikit-build-core names, else any.
foreach(candidate IN ITEMS "${Python_EXECUTABLE}" "${PYTHON_EXECUTABLE}" "${Python3_EXECUTABLE}")
  if(candidate AND NOT roofline_python)
    set(roofline_python "${candidate}")
  endif()
endforeach()
if(NOT roofline_python)
  find_program(roofline_python NAMES python3 python NO_CACHE)
endif()

# roofline_in_wheels(<variable> <major or empty> <file>): full path of a file in NVIDIA's PyPI packages, or empty.
function(roofline_in_wheels variable major file)
  set(found "")
  if(roofline_python)
    set(only "")
    if(major)
      set(only --major ${major})
    endif()
    execute_process(COMMAND "${roofline_python}" "${PROJECT_SOURCE_DIR}/cmake/cuda_locate.py" ${only} ${file}
      OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

# roofline_without_cuda(<reason>): leave the backend out, or stop where it was asked for.
macro(roofline_without_cuda reason)
  if(roofline_cuda STREQUAL "ON")
    message(FATAL_ERROR "ROOFLINE_CUDA=ON, but ${reason}. Install CUDA's nvcc, name it in CUDACXX, "
      "take it from PyPI with ROOFLINE_CUDA_WHEELS=toolkit, or set ROOFLINE_CUDA=OFF.")
  endif()
  set(ROOFLINE_CUDA_WHY_NOT "${reason}")
  message(STATUS "CUDA backend: not built: ${reason}")
endmacro()

if(roofline_cuda STREQUAL "OFF")
  roofline_without_cuda("it is switched off (ROOFLINE_CUDA=OFF)")
  return()
endif()

# A build directory from before nvcc appeared remembers NOTFOUND for ever.
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)
endif()
unset(roofline_nvcc)
if(CMAKE_CUDA_COMPILER)
  set(roofline_nvcc "${CMAKE_CUDA_COMPILER}")
elseif(NOT "$ENV{CUDACXX}" STREQUAL "")
  set(roofline_nvcc "$ENV{CUDACXX}")
else()
  # CMake before 3.26 does not look in /usr/local/cuda, so look before check_language does.
  roofline_in_wheels(roofline_wheel_nvcc "" bin/nvcc)
  cmake_path(GET roofline_wheel_nvcc PARENT_PATH roofline_wheel_bin)
  find_program(roofline_nvcc nvcc
    HINTS ENV CUDA_HOME ENV CUDA_PATH "${roofline_wheel_bin}" /usr/local/cuda PATH_SUFFIXES bin NO_CACHE)
  if(NOT roofline_nvcc)
    roofline_without_cuda("no CUDA compiler was found: nvcc is not on PATH, under CUDA_HOME or CUDA_PATH, or in /usr/local/cuda")
    return()
  endif()
  set(ENV{CUDACXX} "${roofline_nvcc}")
endif()

# PyPI's layout has lib, not lib64: without LIBRARY_PATH the compiler check fails on -lcudart_static.
unset(roofline_wheel_lib)
if(roofline_nvcc MATCHES "^(.*/nvidia/cu[0-9]+)/bin/nvcc$")
  set(roofline_wheel_lib "${CMAKE_MATCH_1}/lib")
  set(ENV{LIBRARY_PATH} "${roofline_wheel_lib}:$ENV{LIBRARY_PATH}")
endif()

# Out of check_language's sight: one architecture too new for this nvcc would make it call the compiler broken.
set(roofline_asked_archs "$ENV{CUDAARCHS}")
unset(ENV{CUDAARCHS})
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "The CUDA compiler ${roofline_nvcc} does not work")
  execute_process(COMMAND "${roofline_nvcc}" --version OUTPUT_QUIET ERROR_VARIABLE error RESULT_VARIABLE result)
  string(REGEX MATCH "[^\n]+" error "${error}")  # its first line
  if(result EQUAL 0)
    roofline_without_cuda("the CUDA compiler does not build a test program (no host compiler it accepts, or an incomplete toolkit)")
  else()
    string(STRIP "${result} ${error}" error)
    roofline_without_cuda("the CUDA compiler does not run (${error})")
  endif()
  return()
endif()

# Architectures: the user's, else those of the GPUs here, else a portable set. What this nvcc does not know is left out.
execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
string(REGEX MATCHALL "[0-9]+[a-z]?" known "${known}")
set(portable 80-real 90-real 80-virtual)
set(wanted "")
if(CMAKE_CUDA_ARCHITECTURES)
  set(wanted ${CMAKE_CUDA_ARCHITECTURES})
elseif(NOT "${roofline_asked_archs}" STREQUAL "")
  set(wanted ${roofline_asked_archs})
else()
  # Not CMake's "native": without a GPU that is a hard error.
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE present ERROR_QUIET RESULT_VARIABLE result)
  if(result EQUAL 0)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" present "${present}")
    foreach(capability IN LISTS present)
      string(REPLACE "." "" capability "${capability}")
      if(capability IN_LIST known)
        list(APPEND wanted ${capability}-real)
      else()
        list(APPEND wanted ${portable})  # newer than nvcc: the driver compiles the virtual code for it
      endif()
    endforeach()
    list(REMOVE_DUPLICATES wanted)
  endif()
  if(NOT wanted)
    set(wanted ${portable})
  endif()
endif()
foreach(arch IN LISTS wanted)
  string(REGEX MATCH "^[0-9]+" number "${arch}")  # nvcc lists 90, and not 90a
  if(number IN_LIST known OR arch MATCHES "^(all|all-major|native)$")
    list(APPEND ROOFLINE_CUDA_ARCHS ${arch})
  else()
    message(STATUS "CUDA backend: this nvcc does not know architecture ${arch}; left out")
  endif()
endforeach()
if(NOT ROOFLINE_CUDA_ARCHS)
  list(JOIN wanted " " wanted)
  roofline_without_cuda("this nvcc knows none of the architectures asked for (${wanted})")
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${ROOFLINE_CUDA_ARCHS})
set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no CUDA20 for nvcc: headers of core/ and ops/ stay C++17
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
enable_language(CUDA)
set(ROOFLINE_CUDA_BUILT ON)
set(ROOFLINE_CUDA_VERSION ${CMAKE_CUDA_COMPILER_VERSION})
string(REGEX MATCH "^[0-9]+" roofline_cuda_major "${ROOFLINE_CUDA_VERSION}")

# roofline_cuda_header(<name> <header>): a header of a library that is opened at run time, from the
# toolkit, else from a PyPI package of the same major version. A toolkit may hold only nvcc and the runtime, and its libraries
# may lack their unversioned names, so find_package(CUDAToolkit) would fail.
function(roofline_cuda_header name header)
  find_path(directory ${header} HINTS ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} NO_DEFAULT_PATH NO_CACHE)
  if(NOT directory)
    roofline_in_wheels(file "${roofline_cuda_major}" include/${header})
    cmake_path(GET file PARENT_PATH directory)
  endif()
  if(NOT directory)
    message(STATUS "CUDA: the toolkit has no ${header}: configure with ROOFLINE_CUDA_WHEELS=headers")
    return()
  endif()
  set(ROOFLINE_${name}_INCLUDE "${directory}" PARENT_SCOPE)
endfunction()
roofline_cuda_header(CUBLAS cublasLt.h)
roofline_cuda_header(NVML nvml.h)

# sm90a/ apart: see below.
file(GLOB sources CONFIGURE_DEPENDS csrc/cuda/*.cpp csrc/cuda/*.cu csrc/cuda/*/*.cpp csrc/cuda/*/*.cu)
list(FILTER sources EXCLUDE REGEX /sm90a/)
add_library(roofline_cuda STATIC ${sources})
target_include_directories(roofline_cuda PRIVATE csrc)
# Code for one architecture alone, where that is among those asked for: wgmma is no part of sm_90, and of nothing newer.
set(roofline_sm90a "")
if("${ROOFLINE_CUDA_ARCHS}" MATCHES "(^|;)(90a?|all|all-major|native)(-|;|$)")
  file(GLOB roofline_sm90a CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} csrc/cuda/sm90a/*.cu)
  add_library(roofline_cuda_sm90a OBJECT ${roofline_sm90a})
  set_target_properties(roofline_cuda_sm90a PROPERTIES CUDA_ARCHITECTURES 90a-real)
  target_include_directories(roofline_cuda_sm90a PRIVATE csrc)
  target_compile_options(roofline_cuda_sm90a PRIVATE -lineinfo -Xcompiler=-Wall,-Wextra)
  target_sources(roofline_cuda PRIVATE $<TARGET_OBJECTS:roofline_cuda_sm90a>)
else()
  target_sources(roofline_cuda PRIVATE csrc/cuda/sm90a/absent.cpp)
endif()
target_include_directories(roofline_cuda SYSTEM PRIVATE
  ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} ${ROOFLINE_CUBLAS_INCLUDE} ${ROOFLINE_NVML_INCLUDE})
target_link_libraries(roofline_cuda PRIVATE ${CMAKE_DL_LIBS})
if(ROOFLINE_CUBLAS_INCLUDE)
  target_compile_definitions(roofline_cuda PRIVATE ROOFLINE_HAVE_CUBLAS_HEADERS)  # they check what cublas_lt.h declares
endif()
if(ROOFLINE_NVML_INCLUDE)
  target_compile_definitions(roofline_cuda PRIVATE ROOFLINE_HAVE_NVML_HEADERS)
endif()
target_compile_options(roofline_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>
  $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo -Xcompiler=-Wall,-Wextra>)
if(roofline_wheel_lib)
  # CMake takes directories of LIBRARY_PATH for implicit ones and drops them from target_link_directories.
  target_link_options(roofline_cuda INTERFACE "-L${roofline_wheel_lib}")
endif()
target_compile_definitions(roofline_core PRIVATE ROOFLINE_WITH_CUDA=1)
target_link_libraries(roofline_core PUBLIC roofline_cuda)
list(JOIN ROOFLINE_CUDA_ARCHS " " roofline_archs_text)
message(STATUS "CUDA backend: nvcc ${ROOFLINE_CUDA_VERSION} for ${roofline_archs_text}")
