# What was built, with what, and what was left out and why: the generated header behind roofline.build_info().

string(TIMESTAMP ROOFLINE_BUILD_DATE "%Y-%m-%d" UTC)
string(REPLACE ";" " " ROOFLINE_ISAS_TEXT "${ROOFLINE_ISAS};${ROOFLINE_EXTRA_ISAS}")
string(REPLACE ";" " " ROOFLINE_CUDA_ARCHS_TEXT "${ROOFLINE_CUDA_ARCHS}")
foreach(text IN ITEMS ROOFLINE_CUDA_WHY_NOT ROOFLINE_ONEDNN_WHY_NOT ROOFLINE_OPENBLAS_WHY_NOT ROOFLINE_CUBLAS_HEADERS_WHY_NOT
    ROOFLINE_NVML_HEADERS_WHY_NOT)
  string(REGEX REPLACE "[\n\r]+" " " ${text} "${${text}}")
  string(REPLACE "\\" "\\\\" ${text} "${${text}}")
  string(REPLACE "\"" "\\\"" ${text} "${${text}}")
endforeach()
if(NOT DEFINED SKBUILD_PROJECT_VERSION)
  set(SKBUILD_PROJECT_VERSION "unpackaged")
endif()
configure_file(cmake/build_info.h.in ${CMAKE_CURRENT_BINARY_DIR}/generated/build_info.h @ONLY)
target_include_directories(roofline_core PUBLIC ${CMAKE_CURRENT_BINARY_DIR}/generated)
