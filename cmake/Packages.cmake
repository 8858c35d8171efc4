# Defines what is installed, and the Debian packages of it. Use scripts/package.sh, or cpack in a build folder whose
# programs are built; cpack itself builds nothing. Programs find each other in their folder, lib/lynx; those that people
# call have links in bin. Units and configuration are where Debian 12 expects them, and contain Debian's paths.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(made ${PROJECT_BINARY_DIR}/debian)
set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)

# gzip leaves out the time of the file, because the time would make the result differ at each run.
function(lynx_gzip from to)
  execute_process(COMMAND gzip -9n INPUT_FILE ${from} OUTPUT_FILE ${to} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
file(MAKE_DIRECTORY ${made}/links)
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${debian}/changelog)
lynx_gzip(${debian}/changelog ${made}/changelog.gz)

# lynx_package(COMPONENT PACKAGE [CALLED program...] [PROGRAMS program...]): installs the package's programs, with links
# for those that people call.
function(lynx_package component package)
  cmake_parse_arguments(ARG "" "" "CALLED;PROGRAMS" ${ARGN})
  install(TARGETS ${ARG_CALLED} ${ARG_PROGRAMS} DESTINATION lib/lynx COMPONENT ${component})
  foreach(program ${ARG_CALLED})
    file(CREATE_LINK ../lib/lynx/${program} ${made}/links/${program} SYMBOLIC)
    install(FILES ${made}/links/${program} DESTINATION bin COMPONENT ${component})
  endforeach()
  install(FILES ${debian}/copyright ${made}/changelog.gz DESTINATION share/doc/${package} COMPONENT ${component})
endfunction()

# lynx_service(NAME purged...): installs the unit, configuration, manual page and maintainer scripts of a daemon's
# package. `purged`: what is removed when the package is purged, as a sentence and as shell commands.
function(lynx_service service purged purge)
  string(REPLACE "lynx-" "" component ${service})
  install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/${service}.service DESTINATION /lib/systemd/system COMPONENT ${component})
  install(FILES ${debian}/${service}.default DESTINATION /etc/default RENAME ${service} COMPONENT ${component})
  install(CODE "
    file(MAKE_DIRECTORY \"${made}/man\")
    execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/daemon_man.py $<TARGET_FILE:${service}>
                    COMMAND gzip -9n OUTPUT_FILE \"${made}/man/${service}.1.gz\" COMMAND_ERROR_IS_FATAL ANY)"
          COMPONENT ${component})
  install(FILES ${made}/man/${service}.1.gz DESTINATION share/man/man1 COMPONENT ${component})
  set(scripts)
  foreach(script postinst prerm postrm)
    set(from ${debian}/${service}.${script})
    if(NOT EXISTS ${from})
      set(from ${debian}/service.${script}.in)
    endif()
    file(MAKE_DIRECTORY ${made}/${service})
    configure_file(${from} ${made}/${service}/${script} @ONLY)
    list(APPEND scripts ${made}/${service}/${script})
  endforeach()
  file(WRITE ${made}/${service}/conffiles "/etc/default/${service}\n")
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${scripts} ${made}/${service}/conffiles PARENT_SCOPE)
endfunction()

find_package(Python3 COMPONENTS Interpreter REQUIRED)
lynx_package(common lynx-common PROGRAMS lynx-opt lynx-studio)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/dashboards/grafana ${PROJECT_SOURCE_DIR}/dashboards/provisioning ${PROJECT_SOURCE_DIR}/dashboards/prometheus
        DESTINATION share/lynx COMPONENT common PATTERN lynx_rules_test.yml EXCLUDE)
# The annotations of the alerts name this file at this place.
install(FILES ${PROJECT_SOURCE_DIR}/docs/runbooks.md DESTINATION share/lynx/docs COMPONENT common)
foreach(script postinst postrm)
  configure_file(${debian}/lynx-common.${script} ${made}/lynx-common/${script} COPYONLY)
endforeach()
set(CPACK_DEBIAN_COMMON_PACKAGE_CONTROL_EXTRA ${made}/lynx-common/postinst ${made}/lynx-common/postrm)

lynx_package(rank lynx-rank PROGRAMS lynx-rank)

lynx_package(server lynx-server CALLED lynx-server)
lynx_service(lynx-server "Purging takes the database and the keys. Checkpoints are people's work: they stay, and who purges is told."
"if [ -d /var/lib/lynx/server ]; then
    find /var/lib/lynx/server -mindepth 1 -maxdepth 1 ! -name jobs -exec rm -rf {} +
    rmdir --ignore-fail-on-non-empty /var/lib/lynx/server/jobs 2>/dev/null || true
    rmdir --ignore-fail-on-non-empty /var/lib/lynx/server
    if [ -d /var/lib/lynx/server/jobs ]; then
      echo \"lynx-server: checkpoints are left in /var/lib/lynx/server/jobs\"
    fi
  fi")

lynx_package(agent lynx-agent CALLED lynx-agent)
lynx_service(lynx-agent "Purging takes kept measurements, and the node's certificate where no worker daemon uses it."
"rm -rf /var/lib/lynx/agent
  [ -e /usr/lib/lynx/lynx-worker ] || rm -rf /var/lib/lynx/identity /var/lib/lynx/join-token")

lynx_package(worker lynx-worker CALLED lynx-worker)
lynx_service(lynx-worker "Purging takes the ranks' files and their copies in memory, and the node's certificate where no agent uses it. Checkpoints stay."
"copies=/dev/shm/lynx-copies-$(printf %s /var/lib/lynx/worker | sha256sum | cut -c1-16)
  rm -rf /var/lib/lynx/worker \"$copies\"
  [ -e /usr/lib/lynx/lynx-agent ] || rm -rf /var/lib/lynx/identity /var/lib/lynx/join-token")

lynx_package(ctl lynxctl CALLED lynxctl PROGRAMS lynx-verbs)
install(FILES ${debian}/lynxctl.lintian-overrides DESTINATION share/lintian/overrides RENAME lynxctl COMPONENT ctl)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/ DESTINATION share/doc/lynxctl/examples COMPONENT ctl)
install(FILES ${PROJECT_SOURCE_DIR}/docs/job-schema.json DESTINATION share/lynx COMPONENT ctl)
install(CODE "
  set(lynxctl $<TARGET_FILE:lynxctl>)
  file(REMOVE_RECURSE \"${made}/lynxctl\")
  file(MAKE_DIRECTORY \"${made}/lynxctl/man\")
  execute_process(COMMAND \${lynxctl} man --out \"${made}/lynxctl/man\" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB pages \"${made}/lynxctl/man/*.1\")
  execute_process(COMMAND gzip -9n \${pages} COMMAND_ERROR_IS_FATAL ANY)
  foreach(shell bash zsh fish)
    execute_process(COMMAND \${lynxctl} completion \${shell} OUTPUT_FILE \"${made}/lynxctl/\${shell}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()"
        COMPONENT ctl)
install(DIRECTORY ${made}/lynxctl/man/ DESTINATION share/man/man1 COMPONENT ctl)
install(FILES ${made}/lynxctl/bash DESTINATION share/bash-completion/completions RENAME lynxctl COMPONENT ctl)
install(FILES ${made}/lynxctl/zsh DESTINATION share/zsh/vendor-completions RENAME _lynxctl COMPONENT ctl)
install(FILES ${made}/lynxctl/fish DESTINATION share/fish/vendor_completions.d RENAME lynxctl.fish COMPONENT ctl)

set(python_component)
if(LYNX_PYTHON)
  set(python_component python)
  set(packages lib/python3/dist-packages)
  install(TARGETS lynx_python LIBRARY DESTINATION ${packages}/lynx COMPONENT python)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/python/lynx DESTINATION ${packages} COMPONENT python
          FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN py.typed PATTERN "*.yaml" PATTERN __pycache__ EXCLUDE)
  install(FILES ${debian}/copyright ${made}/changelog.gz DESTINATION share/doc/python3-lynx COMPONENT python)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/python/ DESTINATION share/doc/python3-lynx/examples COMPONENT python)
  foreach(script postinst prerm)
    configure_file(${debian}/python3-lynx.${script} ${made}/python3-lynx/${script} COPYONLY)
  endforeach()
  set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${made}/python3-lynx/postinst ${made}/python3-lynx/prerm)
endif()

# --- cpack

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lynx)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_COMPONENTS_ALL common rank server agent worker ctl ${python_component})
set(CPACK_DEB_COMPONENT_INSTALL ON)
# The folders /etc and /lib are outside the prefix.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)  # each package depends on the same version of the others
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "The authors of Lynx <lynx@lists.example.org>")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)

# lynx_describe(COMPONENT PACKAGE "synopsis" "text" [NEEDS component...] [DEPENDS text] [RECOMMENDS text] [SUGGESTS text])
macro(lynx_describe component package synopsis text)
  cmake_parse_arguments(ARG "" "DEPENDS;RECOMMENDS;SUGGESTS" "NEEDS" ${ARGN})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${synopsis}\n${text}")
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${ARG_DEPENDS}")
  set(CPACK_DEBIAN_${upper}_PACKAGE_RECOMMENDS "${ARG_RECOMMENDS}")
  set(CPACK_DEBIAN_${upper}_PACKAGE_SUGGESTS "${ARG_SUGGESTS}")
  set(CPACK_COMPONENT_${upper}_DEPENDS ${ARG_NEEDS})
endmacro()

set(about "Lynx plans when each activation of a training job is stored or\nrecomputed, and runs the plan.")
lynx_describe(common lynx-common "training with planned recomputation - common files"
  "${about}\n.\nThis package has what the others share: users and directories, the\nexact solver, the studio's planner, dashboards for Grafana and rules for\nPrometheus."
  DEPENDS "adduser")
lynx_describe(rank lynx-rank "training with planned recomputation - rank process"
  "${about}\n.\nThis package has the process that trains: one for each device. Agents\nmeasure with it, worker daemons start it."
  NEEDS common)
lynx_describe(server lynx-server "training with planned recomputation - server"
  "${about}\n.\nThis package has the server of a cluster: it takes jobs, plans them and\nruns them on the nodes that attach. By default it listens on the\nloopback address."
  NEEDS common RECOMMENDS "lynxctl" SUGGESTS "prometheus")
lynx_describe(agent lynx-agent "training with planned recomputation - agent of a node"
  "${about}\n.\nThis package has the daemon that finds and measures the devices of a node."
  NEEDS common rank RECOMMENDS "lynx-worker")
lynx_describe(worker lynx-worker "training with planned recomputation - worker of a node"
  "${about}\n.\nThis package has the daemon that runs the ranks of jobs on a node. They\ntrain on while it is restarted or upgraded."
  NEEDS common rank RECOMMENDS "lynx-agent")
lynx_describe(ctl lynxctl "training with planned recomputation - command line"
  "${about}\n.\nThis package has the command that submits, watches and explains jobs,\nand plans without a cluster."
  NEEDS common SUGGESTS "lynx-server, lynx-agent, lynx-worker")
if(LYNX_PYTHON)
  # The extension is for one version of Python.
  string(REGEX MATCH "cpython-3([0-9]+)" minor ${LYNX_PYTHON_SUFFIX})
  set(minor ${CMAKE_MATCH_1})
  math(EXPR next "${minor} + 1")
  lynx_describe(python python3-lynx "training with planned recomputation - Python package"
    "${about}\n.\nThis package has the planner and the client for Python: import lynx."
    NEEDS common DEPENDS "python3 (>= 3.${minor}), python3 (<< 3.${next})" SUGGESTS "python3-pandas, lynxctl")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
endif()
include(CPack)
