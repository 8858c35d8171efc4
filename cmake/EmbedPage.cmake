# Writes the files of a page as a C++ source. The build runs it: cmake -DSOURCE=folder -DOUTPUT=page_text.cc -P
# EmbedPage.cmake
set(code "// Made from planner/report/page/ by cmake/EmbedPage.cmake.\n#include \"planner/report/page_text.h\"\n\nnamespace lynx {\n\n")
# Each entry is the name of a function, and the files whose texts the function returns one after another.
foreach(entry PageStyle:page.css SharedScript:shared.js PlanView:view.html
              PlanViewScript:data.js,timeline.js,interaction.js,memory.js,view.js ChartScript:chart.js
              PageTemplate:page.html PlanPageBody:plan.html)
  string(REPLACE ":" ";" entry ${entry})
  list(GET entry 0 function)
  list(GET entry 1 files)
  string(REPLACE "," ";" files ${files})
  set(text "")
  foreach(file ${files})
    file(READ ${SOURCE}/${file} part)
    string(APPEND text "${part}")
  endforeach()
  string(APPEND code "std::string_view ${function}() {\n  return R\"lynx_page(${text})lynx_page\";\n}\n\n")
endforeach()
string(APPEND code "}  // namespace lynx\n")
file(WRITE ${OUTPUT} "${code}")
