# Build rules that every folder shares.

find_program(LYNX_CCACHE ccache)
if(LYNX_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LYNX_CCACHE})
endif()
find_program(LYNX_MOLD mold)
if(LYNX_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2")
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-missing-field-initializers>")
if(LYNX_SANITIZE)
  add_compile_options(-fsanitize=${LYNX_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${LYNX_SANITIZE})
endif()

if(LYNX_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
endif()

find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)

# lynx_library(NAME SOURCES a.cc b.cc [DEPS t...] [PRIVATE_DEPS t...])
function(lynx_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# lynx_binary(NAME SOURCES main.cc DEPS t...)
function(lynx_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# lynx_link_archives(NAME library...): links the archives of these libraries and of Abseil into the program, where they are installed: to
# load them as some seventy shared libraries takes a command longer than what it does. Only mold prefers archives that come first to shared libraries
# that come later, as is needed here; a program with both would have two of everything. Sets LYNX_LINKS_ARCHIVES.
function(lynx_link_archives name)
  set(LYNX_LINKS_ARCHIVES FALSE CACHE INTERNAL "")
  if(NOT LYNX_MOLD OR LYNX_SANITIZE OR LYNX_FUZZ)
    return()
  endif()
  set(archives)
  foreach(library ${ARGN} absl_base)
    find_library(LYNX_ARCHIVE_${library} NAMES lib${library}.a)
    mark_as_advanced(LYNX_ARCHIVE_${library})
    if(NOT LYNX_ARCHIVE_${library})
      message(STATUS "${name} loads shared libraries: lib${library}.a is not installed")
      return()
    endif()
    list(APPEND archives ${LYNX_ARCHIVE_${library}})
  endforeach()
  get_filename_component(folder ${LYNX_ARCHIVE_absl_base} DIRECTORY)
  file(GLOB abseil ${folder}/libabsl_*.a)
  target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc -Wl,--as-needed -Wl,--start-group ${archives} ${abseil}
                                      -Wl,--end-group)
  set(LYNX_LINKS_ARCHIVES TRUE CACHE INTERNAL "")
endfunction()

# lynx_test(NAME SOURCES a_test.cc DEPS t... [TIMEOUT seconds] [LABELS l...] [PREFIX text]): one GoogleTest program, each
# of its tests a CTest test of its own, named with the prefix where several programs have the same tests.
function(lynx_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PREFIX" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  find_package(GTest CONFIG REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE LYNX_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             LYNX_BINARY_DIR="${PROJECT_BINARY_DIR}")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${ARG_PREFIX}"
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
