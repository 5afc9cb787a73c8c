# Tests of the recorder's call stacks. They need the code in a shared library, as it is in the recorder: frames of the
# library that captures are left out.
add_library(gv_stack_probe SHARED test_stack_probe.c stack.c python_stack.c)
target_link_libraries(gv_stack_probe PRIVATE gv_trace gv_base)
target_link_options(gv_stack_probe PRIVATE -static-libgcc -Wl,--exclude-libs,ALL)
set_target_properties(gv_stack_probe PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

foreach(plugin a b)
  add_library(gv_stack_plugin_${plugin} MODULE test_stack_plugin.c)
  target_link_options(gv_stack_plugin_${plugin} PRIVATE -Wl,--build-id)
  set_target_properties(gv_stack_plugin_${plugin} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endforeach()

gv_unit_test(test_stack test_stack.c LIBS gv_stack_probe gv_trace gv_base)
target_compile_definitions(test_stack PRIVATE PLUGIN_A="$<TARGET_FILE:gv_stack_plugin_a>"
                                              PLUGIN_B="$<TARGET_FILE:gv_stack_plugin_b>")
add_dependencies(test_stack gv_stack_plugin_a gv_stack_plugin_b)
gv_unit_test(test_python_stack test_python_stack.c python_stack.c LIBS gv_base)

# A sanitizer's run-time library would have to be loaded before Python is.
find_program(GV_PYTHON python3)
if(GV_PYTHON AND NOT GV_SANITIZE)
  add_test(NAME test_python_stack_live COMMAND ${GV_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/test_python_stack.py
                                               $<TARGET_FILE:gv_stack_probe>)
  set_tests_properties(test_python_stack_live PROPERTIES LABELS unit TIMEOUT 300)
endif()
