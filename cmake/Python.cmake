# Decides whether the Python package is built, and for which interpreter. Sets LYNX_PYTHON to OFF where it cannot be, and says
# why. The interpreter is Debian's, for which the package python3-lynx is, even if PATH names another one first.
find_program(LYNX_PYTHON_INTERPRETER python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_path(LYNX_PYBIND11 pybind11/pybind11.h)
set(why "")
if(LYNX_ENGINE_ONLY OR LYNX_SANITIZE OR LYNX_FUZZ)
  set(LYNX_PYTHON OFF)  # an interpreter without sanitizers cannot load an extension that uses sanitizers
elseif(LYNX_PYTHON AND NOT LYNX_PYTHON_INTERPRETER)
  set(why "there is no /usr/bin/python3: apt-get install python3")
elseif(LYNX_PYTHON AND NOT LYNX_PYBIND11)
  set(why "pybind11 is not installed: apt-get install pybind11-dev python3-dev")
elseif(LYNX_PYTHON)
  execute_process(
    COMMAND ${LYNX_PYTHON_INTERPRETER} -c
            "import sysconfig; print(sysconfig.get_path('include'), sysconfig.get_config_var('EXT_SUFFIX'), sep=';', end='')"
    OUTPUT_VARIABLE found COMMAND_ERROR_IS_FATAL ANY)
  list(GET found 0 LYNX_PYTHON_INCLUDE)
  list(GET found 1 LYNX_PYTHON_SUFFIX)
  if(NOT EXISTS ${LYNX_PYTHON_INCLUDE}/Python.h)
    set(why "${LYNX_PYTHON_INCLUDE}/Python.h is not there: apt-get install python3-dev")
  endif()
endif()
if(why)
  message(STATUS "The Python package is not built: ${why}")
  set(LYNX_PYTHON OFF)
endif()
