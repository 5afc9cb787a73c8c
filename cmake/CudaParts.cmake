# Finds what of CUDA the build needs: cuda.h (needed), nvcc and the Sanitizer API's headers (needed only for the
# device code that records accesses on a GPU; without them the library is built without it and says so).
# `make deps` fetches what is missing from PyPI into build/deps/cuda.

set(GV_CUDA_HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda ${CMAKE_SOURCE_DIR}/build/deps/cuda/nvidia/cu13)

find_path(GV_CUDA_INCLUDE cuda.h HINTS ${GV_CUDA_HINTS} PATH_SUFFIXES include)
if(NOT GV_CUDA_INCLUDE)
  message(FATAL_ERROR "cuda.h was not found. Run `make deps`, or set CUDA_HOME to a CUDA 12.4 or later toolkit.")
endif()

find_program(GV_NVCC nvcc HINTS ${GV_CUDA_HINTS} PATH_SUFFIXES bin)
find_path(GV_SANITIZER_INCLUDE sanitizer_patching.h
          HINTS ${GV_CUDA_HINTS} ${CMAKE_SOURCE_DIR}/build/deps/sanitizer/nvidia/cu13
          PATH_SUFFIXES include compute-sanitizer/include extras/Sanitizer/include)
if(GV_SANITIZER_INCLUDE)
  # The releases from 13.3 on name the tensor copies.
  file(STRINGS ${GV_SANITIZER_INCLUDE}/sanitizer_patching.h tensor_copies REGEX "SANITIZER_INSTRUCTION_TMA_LOAD")
  if(tensor_copies)
    set(GV_SANITIZER_TENSOR_COPIES ON)
  endif()
endif()
if(GV_NVCC AND GV_SANITIZER_INCLUDE)
  set(GV_DEVICE_CODE ON)
else()
  set(GV_DEVICE_CODE OFF)
  message(WARNING "nvcc (${GV_NVCC}) or sanitizer_patching.h (${GV_SANITIZER_INCLUDE}) was not found: "
                  "the recorder is built without GPU access recording. `make deps` fetches both.")
endif()
