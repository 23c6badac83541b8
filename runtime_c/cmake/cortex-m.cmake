# SPDX-License-Identifier: Apache-2.0
# Cortex-M, compiled but not run; -DRAOT_CPU=cortex-m0 (or m3, m4, m7, m33, m55) chooses the core.
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
if(NOT RAOT_CPU)
  set(RAOT_CPU cortex-m4)
endif()
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RAOT_CPU)
set(CMAKE_C_FLAGS_INIT "-mcpu=${RAOT_CPU} -mthumb")
