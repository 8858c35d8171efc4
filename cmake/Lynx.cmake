# Build rules that every folder shares.

option(LYNX_PCH "Precompile the headers of the standard library, Abseil, GoogleTest and gRPC" ON)
find_program(LYNX_CCACHE ccache)
if(LYNX_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # With these settings, ccache can reuse objects that use precompiled headers, also in other checkouts.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
                                  CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} ${LYNX_CCACHE})
endif()
find_program(LYNX_MOLD mold)
if(LYNX_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

set(CMAKE_CXX_FLAGS_RELEASE "-O2")
# -pthread everywhere: some libraries ask for it, and a precompiled header works only for targets with the same flags.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-missing-field-initializers;-pthread>")
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

# Precompiled headers: without them two thirds of the time of a compilation are spent on the same headers of other
# libraries. `kind`: base (standard library and Abseil), rpc (also gRPC and the protocol's messages), test (base and
# GoogleTest), test_rpc. A target with other compiler flags cannot use them, except that -O1 and -O2 share one. To load the
# one of gRPC takes a second longer, so only files that need it use it.
set(LYNX_PCH_base <algorithm> <array> <cstdint> <functional> <map> <memory> <optional> <set> <string> <tuple> <utility> <variant> <vector>
                  <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>)
set(LYNX_PCH_rpc ${LYNX_PCH_base} <google/protobuf/message.h> <google/protobuf/repeated_field.h> <google/protobuf/map.h> <grpcpp/grpcpp.h>
                 <lynx/v1/admin.grpc.pb.h> <lynx/v1/cluster.grpc.pb.h> <lynx/v1/jobs.grpc.pb.h>)
set(LYNX_PCH_test ${LYNX_PCH_base} <gmock/gmock.h> <gtest/gtest.h>)
set(LYNX_PCH_test_rpc ${LYNX_PCH_rpc} <gmock/gmock.h> <gtest/gtest.h>)
function(lynx_precompile name kind)
  get_target_property(relocatable ${name} LYNX_RELOCATABLE)
  if(relocatable)
    target_compile_options(${name} PRIVATE ${LYNX_RELOCATABLE_FLAGS})
  endif()
  if(NOT LYNX_PCH OR LYNX_FUZZ)
    return()
  endif()
  set(owner lynx_pch_${kind})
  if(relocatable)
    string(APPEND owner _relocatable)
  endif()
  if(NOT TARGET ${owner})
    file(WRITE ${PROJECT_BINARY_DIR}/pch/${kind}.cc "")
    add_library(${owner} OBJECT ${PROJECT_BINARY_DIR}/pch/${kind}.cc)
    # With this option GCC writes "#pragma GCC pch_preprocess", from which ccache learns what was included.
    target_compile_options(${owner} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
    if(relocatable)
      target_compile_options(${owner} PRIVATE ${LYNX_RELOCATABLE_FLAGS})
    endif()
    target_precompile_headers(${owner} PRIVATE ${LYNX_PCH_${kind}})
    # The owner needs the definitions that these libraries give to every target that includes their headers.
    if(kind MATCHES test)
      find_package(GTest CONFIG REQUIRED)
      target_link_libraries(${owner} PRIVATE GTest::gmock GTest::gtest)
    endif()
    if(kind MATCHES rpc)
      target_link_libraries(${owner} PRIVATE lynx_proto)
    endif()
  endif()
  target_precompile_headers(${name} REUSE_FROM ${owner})
  # GCC 12 forgets that a precompiled header is a system's, and reports its own false alarms within std::string.
  target_compile_options(
    ${name} PRIVATE
      "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess;-Wno-array-bounds;-Wno-stringop-overflow>")
endfunction()

# Code that the Python extension links must be position-independent. The second flag allows inlining within a
# file.
set(LYNX_RELOCATABLE_FLAGS -fPIC -fno-semantic-interposition)

# lynx_rpc_objects(NAME KIND SOURCES a.cc... DEPS t...): compiles those files of the target that include gRPC or messages
# of the protocol, with the precompiled header of this kind.
function(lynx_rpc_objects name kind)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name}_rpc OBJECT ${ARG_SOURCES})
    target_include_directories(${name}_rpc PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name}_rpc PRIVATE ${ARG_DEPS})
    target_compile_definitions(${name}_rpc PRIVATE $<TARGET_PROPERTY:${name},COMPILE_DEFINITIONS>)
    get_target_property(relocatable ${name} LYNX_RELOCATABLE)
    set_target_properties(${name}_rpc PROPERTIES LYNX_RELOCATABLE ${relocatable})
    lynx_precompile(${name}_rpc ${kind})
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${name}_rpc>)
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)  # also needed if the target has no other files
  endif()
endfunction()

# lynx_library(NAME SOURCES a.cc b.cc [RPC_SOURCES c.cc...] [DEPS t...] [PRIVATE_DEPS t...] [NO_PCH] [IN_EXTENSION]): RPC_SOURCES
# include gRPC or messages of the protocol. Use NO_PCH if the target has flags of its own. IN_EXTENSION: the Python extension
# links the library.
function(lynx_library name)
  cmake_parse_arguments(ARG "NO_PCH;IN_EXTENSION" "" "SOURCES;RPC_SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  if(ARG_IN_EXTENSION AND LYNX_PYTHON)
    set_target_properties(${name} PROPERTIES LYNX_RELOCATABLE TRUE)
  endif()
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  if(NOT ARG_NO_PCH AND ARG_SOURCES)
    lynx_precompile(${name} base)
  endif()
  lynx_rpc_objects(${name} rpc SOURCES ${ARG_RPC_SOURCES} DEPS ${ARG_DEPS} ${ARG_PRIVATE_DEPS})
endfunction()

# lynx_binary(NAME SOURCES main.cc [RPC_SOURCES a.cc...] DEPS t...)
function(lynx_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;RPC_SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  if(ARG_SOURCES)
    lynx_precompile(${name} base)
  endif()
  lynx_rpc_objects(${name} rpc SOURCES ${ARG_RPC_SOURCES} DEPS ${ARG_DEPS})
endfunction()

# lynx_link_archives(NAME library...): links the archives of these libraries and of Abseil into the program, if they are
# installed. Loading them as about seventy shared libraries takes longer than a typical command. This needs mold: only
# mold prefers archives that come first to shared libraries that come later, and a program with both would have
# everything twice. Sets LYNX_LINKS_ARCHIVES.
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

# lynx_test(NAME SOURCES a_test.cc [RPC_SOURCES b_test.cc...] DEPS t... [TIMEOUT seconds] [SLOW filter seconds] [LABELS l...]
# [PREFIX text]): one GoogleTest program. Each of its tests is a CTest test. SLOW: the tests that this filter of
# GoogleTest chooses have another time limit. The prefix comes before the names of tests if several programs have the
# same tests. Waiting threads of OpenMP must not spin, because tests share the cores with other tests. Tests are compiled
# with -O1, which takes a fifth less time; what they test keeps its flags. GCC 12 then reports another false alarm within
# std::string, and it forgets that the macros of GoogleTest are a system's.
function(lynx_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PREFIX" "SOURCES;RPC_SOURCES;DEPS;SLOW;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  find_package(GTest CONFIG REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  if(ARG_SOURCES)
    lynx_precompile(${name} test)
  endif()
  lynx_rpc_objects(${name} test_rpc SOURCES ${ARG_RPC_SOURCES} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest)
  set(targets ${name})
  if(ARG_RPC_SOURCES)
    list(APPEND targets ${name}_rpc)
  endif()
  target_compile_definitions(${name} PRIVATE LYNX_SOURCE_DIR="${PROJECT_SOURCE_DIR}" LYNX_BINARY_DIR="${PROJECT_BINARY_DIR}")
  foreach(target ${targets})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>
                                             $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overread;-Wno-dangling-else>)
  endforeach()
  set(others)
  if(ARG_SLOW)
    list(GET ARG_SLOW 0 filter)
    list(GET ARG_SLOW 1 seconds)
    set(others TEST_FILTER "-${filter}")
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_FILTER "${filter}" TEST_LIST ${name}_SLOW
                         TEST_PREFIX "${ARG_PREFIX}" PROPERTIES TIMEOUT ${seconds} ENVIRONMENT OMP_WAIT_POLICY=passive
                                                          LABELS "${ARG_LABELS}")
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST ${others} TEST_PREFIX "${ARG_PREFIX}"
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT OMP_WAIT_POLICY=passive LABELS "${ARG_LABELS}")
endfunction()
