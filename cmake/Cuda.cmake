# Whether the CUDA backend is built: LYNX_HAS_CUDA, and why.

set(LYNX_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (where the toolkit is), ON or OFF")
set_property(CACHE LYNX_CUDA PROPERTY STRINGS AUTO ON OFF)
set(LYNX_HAS_CUDA OFF)

if(LYNX_CUDA STREQUAL OFF)
  message(STATUS "CUDA: not built, as LYNX_CUDA=OFF says")
  return()
endif()
if(LYNX_SANITIZE OR LYNX_FUZZ)
  message(STATUS "CUDA: not built with sanitizers")
  return()
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(LYNX_CUDA STREQUAL ON)
    message(FATAL_ERROR "LYNX_CUDA=ON, but there is no CUDA compiler: install the toolkit, or name its nvcc with "
                        "-DCMAKE_CUDA_COMPILER=PATH")
  endif()
  message(STATUS "CUDA: not built, as this machine has no CUDA toolkit")
  return()
endif()

set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real)
endif()
if(LYNX_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${LYNX_CCACHE})
endif()
enable_language(CUDA)
# It knows Blackwell from version 12.8 on.
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8 AND CMAKE_CUDA_ARCHITECTURES STREQUAL "80-real;90-real")
  list(APPEND CMAKE_CUDA_ARCHITECTURES 100-real)
endif()
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
# CMake 3.25 does not know that a newer nvcc has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
# Constant expressions of the host may be called on the device: arithmetic that both do is written once.
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
find_package(CUDAToolkit REQUIRED)
set(LYNX_HAS_CUDA ON)
message(STATUS "CUDA: built with ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
