# Compiler settings every target shares, and how a unit test is declared.

add_compile_options(-Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith
                    -Wvla -Wno-unused-parameter -fno-semantic-interposition -fno-strict-aliasing)
add_compile_definitions(_GNU_SOURCE GRAVEL_VERSION="${PROJECT_VERSION}")

# GV_SANITIZE=address,undefined or thread builds everything with that sanitizer.
set(GV_SANITIZE "" CACHE STRING "Sanitizers to build with, as for -fsanitize=")
if(GV_SANITIZE)
  add_compile_options(-fsanitize=${GV_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${GV_SANITIZE})
endif()

# gv_library(NAME SOURCES... [LIBS ...]): a static library gv_NAME of one folder under src/.
function(gv_library name)
  cmake_parse_arguments(LIB "" "" "LIBS" ${ARGN})
  add_library(gv_${name} STATIC ${LIB_UNPARSED_ARGUMENTS})
  target_link_libraries(gv_${name} PUBLIC ${LIB_LIBS})
endfunction()

# gv_unit_test(NAME SOURCE... [LIBS ...]): a cmocka program, run by ctest under NAME with label "unit".
function(gv_unit_test name)
  cmake_parse_arguments(TEST "" "" "LIBS" ${ARGN})
  add_executable(${name} ${TEST_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${TEST_LIBS} cmocka)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  # Tests of absurd sizes want NULL from the allocator, as without a sanitizer, and not the end of the process.
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 900 ENVIRONMENT
                       "TSAN_OPTIONS=allocator_may_return_null=1;ASAN_OPTIONS=allocator_may_return_null=1")
endfunction()

# gv_static_library(VARIABLE NAME): where libNAME.a is. What `gravel` needs is linked into it (see src/cli).
function(gv_static_library variable name)
  find_library(${variable} NAMES lib${name}.a)
  if(NOT ${variable})
    message(FATAL_ERROR "lib${name}.a was not found. Run `make deps`, or install the development package that has it.")
  endif()
endfunction()
