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

if(GV_NVCC)
  foreach(name kernels constant)
    add_custom_command(
      OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/test_cubin_${name}.cubin
      COMMAND ${GV_NVCC} -cubin -arch=sm_90a -o ${CMAKE_CURRENT_BINARY_DIR}/test_cubin_${name}.cubin
              ${CMAKE_CURRENT_SOURCE_DIR}/test_cubin_${name}.cu
      DEPENDS test_cubin_${name}.cu)
    list(APPEND test_cubins ${CMAKE_CURRENT_BINARY_DIR}/test_cubin_${name}.cubin)
  endforeach()
  add_custom_target(test_cubin_image ALL DEPENDS ${test_cubins})
  gv_unit_test(test_cubin test_cubin.c cubin.c flow.c LIBS gv_base)
  add_dependencies(test_cubin test_cubin_image)
  target_compile_definitions(test_cubin PRIVATE GV_TEST_CUBINS="${CMAKE_CURRENT_BINARY_DIR}/test_cubin_")
endif()

# Control flow differs from one architecture to the next.
if(GV_NVCC)
  foreach(arch 90a 100a 120a)
    set(cubin ${CMAKE_CURRENT_BINARY_DIR}/test_flow_${arch}.cubin)
    add_custom_command(OUTPUT ${cubin} COMMAND ${GV_NVCC} -cubin -arch=sm_${arch} -o ${cubin}
                                               ${CMAKE_CURRENT_SOURCE_DIR}/test_flow_kernels.cu
                       DEPENDS test_flow_kernels.cu)
    list(APPEND test_flow_cubins ${cubin})
  endforeach()
  add_custom_target(test_flow_images ALL DEPENDS ${test_flow_cubins})
  gv_unit_test(test_flow test_flow.c cubin.c flow.c LIBS gv_base)
  add_dependencies(test_flow test_flow_images)
  target_compile_definitions(test_flow PRIVATE GV_TEST_FLOW_CUBINS="${CMAKE_CURRENT_BINARY_DIR}/test_flow_")

  gv_unit_test(test_waits test_waits.c waits.c early.c node_ranges.c cubin.c flow.c LIBS gv_trace gv_base)
  target_include_directories(test_waits SYSTEM PRIVATE ${GV_CUDA_INCLUDE})
  add_dependencies(test_waits test_flow_images)
  target_compile_definitions(test_waits PRIVATE GV_TEST_WAITS_CUBIN="${CMAKE_CURRENT_BINARY_DIR}/test_flow_90a.cubin")

  # Held by the holding kernel, on the software driver; their machine code is that of test_flow's kernels.
  gv_unit_test(test_watching test_watching.c watching.c waits.c early.c node_ranges.c cubin.c flow.c driver.c
               LIBS gv_trace gv_base soft_cuda dl)
  target_include_directories(test_watching SYSTEM PRIVATE ${GV_CUDA_INCLUDE})
  target_compile_definitions(test_watching PRIVATE
    GV_TEST_WATCHING_KERNELS="${CMAKE_BINARY_DIR}/soft/test_watching_kernels.so"
    GV_TEST_WATCHING_CUBIN="${CMAKE_CURRENT_BINARY_DIR}/test_flow_90a.cubin")
  add_dependencies(test_watching soft_test_watching_kernels test_flow_images)
endif()

# drain.c calls the driver through a table that this test leaves empty.
gv_unit_test(test_drain test_drain.c drain.c driver.c node_ranges.c tensor_map.c LIBS gv_trace gv_base dl)
target_include_directories(test_drain SYSTEM PRIVATE ${GV_CUDA_INCLUDE})

gv_unit_test(test_tensor_map test_tensor_map.c tensor_map.c LIBS gv_trace gv_base)
gv_unit_test(test_mark test_mark.c drain.c driver.c node_ranges.c tensor_map.c LIBS gv_trace gv_base dl)
target_include_directories(test_mark SYSTEM PRIVATE ${GV_CUDA_INCLUDE})

gv_unit_test(test_serial_order test_serial_order.c serial_order.c LIBS gv_base)
target_include_directories(test_serial_order SYSTEM PRIVATE ${GV_CUDA_INCLUDE})

# What is tested is the kernels too, on the software driver.
gv_unit_test(test_compare test_compare.c compare.c driver.c LIBS gv_access gv_trace gv_base soft_cuda dl)
gv_unit_test(test_reach test_reach.c reach.c compare.c driver.c LIBS gv_access gv_trace gv_base soft_cuda dl)
gv_unit_test(test_image test_image.c image.c compare.c driver.c LIBS gv_access gv_trace gv_base soft_cuda dl)
gv_unit_test(test_shadow test_shadow.c shadow.c image.c compare.c driver.c LIBS gv_access gv_trace gv_base soft_cuda dl)
foreach(test test_compare test_reach test_image test_shadow)
  target_include_directories(${test} SYSTEM PRIVATE ${GV_CUDA_INCLUDE})
  add_dependencies(${test} gv_compare_soft gv_shadow_soft)
  if(GV_DEVICE_CODE)
    add_dependencies(${test} gv_device)
  endif()
endforeach()

# On the software driver, with kernels of its tests.
gv_unit_test(test_parameters test_parameters.c parameters.c tensor_map.c driver.c LIBS gv_trace gv_base soft_cuda dl)
target_include_directories(test_parameters SYSTEM PRIVATE ${GV_CUDA_INCLUDE})
target_compile_definitions(test_parameters PRIVATE GV_TEST_KERNELS_PATH="${CMAKE_BINARY_DIR}/soft/test_kernels.so")
add_dependencies(test_parameters soft_test_kernels)

gv_unit_test(test_rows test_rows.c rows.c LIBS gv_base pthread)
gv_unit_test(test_probe_values test_probe_values.c probe_values.c LIBS m)
target_include_directories(test_probe_values SYSTEM PRIVATE ${GV_CUDA_INCLUDE})

# Edges of a fix file, on the software driver.
gv_unit_test(test_graph_edges test_graph_edges.c graph_edges.c graph_pairing.c driver.c LIBS gv_trace gv_base soft_cuda dl)
target_include_directories(test_graph_edges SYSTEM PRIVATE ${GV_CUDA_INCLUDE})

# What is tested is the kernels too, on the software driver.
gv_unit_test(test_hash test_hash.c hash.c driver.c LIBS gv_base soft_cuda dl)
target_include_directories(test_hash SYSTEM PRIVATE ${GV_CUDA_INCLUDE})
add_dependencies(test_hash gv_hash_soft)
if(GV_DEVICE_CODE)
  add_dependencies(test_hash gv_device)
endif()
gv_unit_test(test_page_set test_page_set.c page_set.c pattern_parse.c LIBS gv_base)
