/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raot_shim_host.h - runs the kernels of a .cu text that a C++ compiler has built, without a GPU.
 *
 * Blocks run one after the other in random order; the threads of a block are fibers in random
 * order, which run from one barrier or exchange to the next. Registration is static: the kernels
 * that are linked can be found by name.
 */
#ifndef RAOT_SHIM_HOST_H
#define RAOT_SHIM_HOST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct raot_shim_function;

/* NULL where no kernel has the name. */
const struct raot_shim_function *raot_shim_find(const char *name);

/* The number of parameters, and the bytes of each. */
int32_t raot_shim_parameter_count(const struct raot_shim_function *function);
size_t raot_shim_parameter_bytes(const struct raot_shim_function *function, int32_t position);

/* The number of threads of a block that the kernel is compiled for. */
int32_t raot_shim_threads(const struct raot_shim_function *function);

/* The bytes of shared memory that a launch of the kernel asks for. */
int32_t raot_shim_shared_bytes(const struct raot_shim_function *function);

/*
 * Runs `blocks` blocks of `threads` threads. `parameters` has the address of each argument.
 * Returns NULL, or what is wrong: a barrier that some threads of a block do not reach, an exchange
 * that some lanes of a warp do not reach, another number of threads than the kernel has. The same
 * seed gives the same order.
 */
const char *raot_shim_launch(const struct raot_shim_function *function, int64_t blocks,
                             int32_t threads, void *const *parameters, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
