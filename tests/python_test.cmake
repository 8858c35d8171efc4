# lynx_python_test(NAME [MODULE m | SCRIPT file [ARGUMENTS a...]] [LABELS l...] [TIMEOUT seconds] [ENVIRONMENT NAME=VALUE...]
# [INTERPRETER python] [SERIAL | CLUSTER]): makes the tests of a Python file in this folder one CTest test. program.py runs a
# module; a script runs itself. Every Python test is made with this function, so that scripts/skips.py learns of everything that
# is skipped in it. INTERPRETER: another than that of the other tests. SERIAL: it uses the whole machine and is judged by its
# speed, so it runs alone. CLUSTER: it starts many processes, but is right at any speed: one such test runs at a time, and small
# tests run at the same time as it. These begin first, because they are the longest.
function(lynx_python_test name)
  cmake_parse_arguments(ARG "SERIAL;CLUSTER" "MODULE;SCRIPT;TIMEOUT;INTERPRETER" "ARGUMENTS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  if(NOT ARG_INTERPRETER)
    set(ARG_INTERPRETER ${Python3_EXECUTABLE})
  endif()
  if(ARG_MODULE)
    set(command ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/program.py ${ARG_MODULE})
  else()
    set(command ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT} ${ARG_ARGUMENTS})
  endif()
  add_test(NAME ${name} COMMAND ${ARG_INTERPRETER} ${command} WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set(environment "LYNX_BIN=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" PYTHONDONTWRITEBYTECODE=1 ${ARG_ENVIRONMENT})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_SERIAL} SKIP_RETURN_CODE 77
                       ENVIRONMENT "${environment}")
  if(ARG_CLUSTER)
    set_tests_properties(${name} PROPERTIES RESOURCE_LOCK cluster COST 1000)
  endif()
endfunction()
