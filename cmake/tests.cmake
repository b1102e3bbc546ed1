# The C tests: one cmocka program for each tests/c/test_*.c, linked with every object of the core, so that internal functions are visible.
# `cmake --build BUILD --target tern_tests` builds them, ctest runs them.
if(CMAKE_CROSSCOMPILING)
  set(TERN_TEST_ENVIRONMENT ";TERN_TEST_EMULATED=1")
endif()
find_path(TERN_CMOCKA_INCLUDE cmocka.h)
find_library(TERN_CMOCKA_LIBRARY cmocka)
if(NOT TERN_CMOCKA_INCLUDE OR NOT TERN_CMOCKA_LIBRARY)
  message(WARNING "no cmocka, so no C tests (Debian: apt-get install libcmocka-dev)")
  return()
endif()

add_custom_target(tern_tests)

file(GLOB TERN_TEST_SOURCES CONFIGURE_DEPENDS tests/c/test_*.c)
foreach(source IN LISTS TERN_TEST_SOURCES)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL "${source}" $<TARGET_OBJECTS:tern_core> ${TERN_KERNEL_OBJECTS})
  target_link_libraries(${name} PRIVATE tern_options "${TERN_CMOCKA_LIBRARY}" dl m)
  target_include_directories(${name} PRIVATE src)
  target_include_directories(${name} SYSTEM PRIVATE "${TERN_CMOCKA_INCLUDE}")
  target_compile_definitions(${name} PRIVATE "TERN_TEST_DATA=\"${CMAKE_SOURCE_DIR}/tests\"")
  # cmocka's macros convert integers freely, and a test may reuse a name. On the source, so that it comes after the target's own -W.
  set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "-Wno-conversion;-Wno-shadow")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_dependencies(tern_tests ${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900
    ENVIRONMENT "TERN_CACHE_DIR=off;ASAN_OPTIONS=detect_leaks=1;UBSAN_OPTIONS=print_stacktrace=1;TSAN_OPTIONS=halt_on_error=0 exitcode=66${TERN_TEST_ENVIRONMENT}")
endforeach()
include(cmake/plugins.cmake)
