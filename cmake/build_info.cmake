# What was built, with what, and what was left out and why: the generated header behind roofline.build_info().

string(TIMESTAMP ROOFLINE_BUILD_DATE "%Y-%m-%d" UTC)
string(REPLACE ";" " " ROOFLINE_ISAS_TEXT "${ROOFLINE_ISAS};${ROOFLINE_EXTRA_ISAS}")
string(REPLACE ";" " " ROOFLINE_CUDA_ARCHS_TEXT "${ROOFLINE_CUDA_ARCHS}")
string(REGEX REPLACE "[\n\r]+" " " ROOFLINE_CUDA_WHY_NOT "${ROOFLINE_CUDA_WHY_NOT}")
string(REPLACE "\\" "\\\\" ROOFLINE_CUDA_WHY_NOT "${ROOFLINE_CUDA_WHY_NOT}")
string(REPLACE "\"" "\\\"" ROOFLINE_CUDA_WHY_NOT "${ROOFLINE_CUDA_WHY_NOT}")
if(NOT DEFINED SKBUILD_PROJECT_VERSION)
  set(SKBUILD_PROJECT_VERSION "unpackaged")
endif()
configure_file(cmake/build_info.h.in ${CMAKE_CURRENT_BINARY_DIR}/generated/build_info.h @ONLY)
target_include_directories(roofline_core PUBLIC ${CMAKE_CURRENT_BINARY_DIR}/generated)
