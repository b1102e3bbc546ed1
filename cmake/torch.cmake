# torch_tern/_C: one Python extension module with the whole of libtern in it, built against the PyTorch of the Python that was chosen. PyTorch's C++
# interface changes with each minor version, so the version compiled for is written beside the module and checked before it is loaded.
enable_language(CXX)
set(TERN_PYTHON "" CACHE FILEPATH "the Python whose torch the module is built for (default: the one scikit-build-core found, else python3)")
set(TERN_PYTHON_OUTPUT "${CMAKE_BINARY_DIR}/python/torch_tern" CACHE PATH "where the module is put")
if(NOT TERN_PYTHON)
  if(DEFINED Python_EXECUTABLE)
    set(TERN_PYTHON "${Python_EXECUTABLE}")
  else()
    find_program(TERN_PYTHON_FOUND NAMES python3 REQUIRED)
    set(TERN_PYTHON "${TERN_PYTHON_FOUND}")
  endif()
endif()

# Where torch lies and which version it is, without importing it (an import would load the module that is about to be built).
execute_process(
  COMMAND "${TERN_PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/find_torch.py"
  OUTPUT_VARIABLE TERN_FOUND OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE TERN_FIND_RESULT)
if(NOT TERN_FIND_RESULT EQUAL 0)
  message(FATAL_ERROR "no usable torch in ${TERN_PYTHON}: install torch 2.13 there, or pass -DTERN_PYTHON=/path/to/python or -DTERN_BUILD_TORCH=OFF")
endif()
list(GET TERN_FOUND 0 TERN_TORCH_ROOT)
list(GET TERN_FOUND 1 TERN_TORCH_VERSION)
list(GET TERN_FOUND 2 TERN_PYTHON_INCLUDE)
list(GET TERN_FOUND 3 TERN_MODULE_SUFFIX)
if(NOT TERN_TORCH_VERSION MATCHES "^2\\.13\\.")
  message(FATAL_ERROR "this source builds for torch 2.13, and ${TERN_PYTHON} has torch ${TERN_TORCH_VERSION}")
endif()
if(NOT EXISTS "${TERN_PYTHON_INCLUDE}/Python.h")
  message(FATAL_ERROR "${TERN_PYTHON_INCLUDE}/Python.h is missing: install Python's headers (Debian: apt-get install python3-dev)")
endif()
message(STATUS "torch ${TERN_TORCH_VERSION} in ${TERN_TORCH_ROOT}")

file(GLOB TERN_TORCH_C CONFIGURE_DEPENDS src/torch/*.c)
add_library(tern_torch MODULE src/torch/shim.cpp ${TERN_TORCH_C})
target_sources(tern_torch PRIVATE $<TARGET_OBJECTS:tern_core> ${TERN_KERNEL_OBJECTS})
target_include_directories(tern_torch PRIVATE include)
target_include_directories(tern_torch SYSTEM PRIVATE
  "${TERN_PYTHON_INCLUDE}" "${TERN_TORCH_ROOT}/include" "${TERN_TORCH_ROOT}/include/torch/csrc/api/include" "${TERN_TORCH_ROOT}/include/kineto")
target_link_directories(tern_torch PRIVATE "${TERN_TORCH_ROOT}/lib")
target_link_libraries(tern_torch PRIVATE torch_cpu c10 dl m)
target_compile_definitions(tern_torch PRIVATE _GNU_SOURCE)
target_compile_options(tern_torch PRIVATE -pthread -Wall -Wextra -Wshadow -Werror $<$<COMPILE_LANGUAGE:C>:-Wconversion> -ffp-contract=off)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(tern_torch PRIVATE -mtls-dialect=gnu2)
endif()
# -g0: PyTorch's templates would make debug information that takes longer to write than the code.
target_compile_options(tern_torch PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O2 -g0 -Wno-unused-parameter>)
set_target_properties(tern_torch PROPERTIES
  CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  PREFIX "" OUTPUT_NAME "_C" SUFFIX "${TERN_MODULE_SUFFIX}" LIBRARY_OUTPUT_DIRECTORY "${TERN_PYTHON_OUTPUT}" BUILD_WITH_INSTALL_RPATH ON)
target_link_options(tern_torch PRIVATE -pthread -Wl,--no-undefined-version -Wl,--gc-sections)
file(MAKE_DIRECTORY "${TERN_PYTHON_OUTPUT}")
file(WRITE "${CMAKE_BINARY_DIR}/_build.py"
  "# Written by CMake: what torch_tern._C was built for.\nVERSION = \"${PROJECT_VERSION}\"\nTORCH = \"${TERN_TORCH_VERSION}\"\n")
configure_file("${CMAKE_BINARY_DIR}/_build.py" "${TERN_PYTHON_OUTPUT}/_build.py" COPYONLY)
# Tables that Python reads as well (python/torch_tern/_tables.py).
set(TERN_TABLES src/base/errors.def src/pjrt/plugins.def)
foreach(table ${TERN_TABLES})
  configure_file(${table} "${TERN_PYTHON_OUTPUT}" COPYONLY)
endforeach()

if(SKBUILD)
  install(TARGETS tern_torch LIBRARY DESTINATION torch_tern)
  install(FILES "${TERN_PYTHON_OUTPUT}/_build.py" ${TERN_TABLES} DESTINATION torch_tern)
endif()
