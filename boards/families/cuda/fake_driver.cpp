/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_driver.cpp - the functions of libcuda.so.1 that generated projects use, on the CPU.
 *
 * Memory of the "GPU" has addresses of its own and can be accessed only while a kernel or a copy
 * runs, so that code of the host that touches it stops with a signal; kernels are given only
 * addresses of such memory. Work of a stream is done when somebody waits for it, not before. Bytes
 * behind each block are checked then. Any function can be made to fail: fake_fail, or
 * RAOT_FAKE_FAIL=cuMemAlloc_v2:1 (the first call). RAOT_FAKE_VERSION, RAOT_FAKE_SM and
 * RAOT_FAKE_INTEGRATED say what the driver and the GPU are.
 */
#include "fake_state.h"

#include <cstdint>
#include <cstring>

using namespace fake;

namespace
{

int the_context;

} // namespace

extern "C" {

/* Of tests: the calls so far, the things that were not given back, and failures to come. */

int fake_calls(const char *name)
{
    return driver.calls[name];
}

int fake_live(void)
{
    return static_cast<int>(fake::blocks.size() + driver.graphs.size() + driver.executables.size() +
                            driver.modules.size() + driver.contexts.size()) +
           driver.retained + library_live();
}

void fake_fail(const char *name, int nth, int error)
{
    driver.failures[name] = {nth, error};
}

/* Ends the context, as the driver does when nobody holds it any more: what was in it is gone. */
void fake_end_context(void)
{
    driver.graphs.clear();
    driver.executables.clear();
    driver.modules.clear();
    driver.streams.clear();
    driver.contexts.clear();
    library_reset();
    while (!fake::blocks.empty()) {
        const Block block = fake::blocks.begin()->second;
        drop(block);
    }
    driver.retained = 0;
}

void fake_reset(void)
{
    driver.failures.clear();
    driver.calls.clear();
    driver.lost = OK;
}

int cuInit(unsigned int)
{
    BEGIN_ANYWHERE("cuInit")
    driver.initialized = true;
    return OK;
}

int cuDriverGetVersion(int *version)
{
    BEGIN_ANYWHERE("cuDriverGetVersion")
    *version = setting("RAOT_FAKE_VERSION", fake::release);
    return OK;
}

int cuGetErrorString(int error, const char **text)
{
    if (const int failure = begin("cuGetErrorString", false); failure != driver.lost) {
        return failure;
    }
    *text = error == OUT_OF_MEMORY ? "out of memory" : "an error of the fake driver";
    return OK;
}

int cuDeviceGet(int *device, int ordinal)
{
    BEGIN_ANYWHERE("cuDeviceGet")
    *device = ordinal;
    return ordinal == 0 ? OK : INVALID_VALUE;
}

int cuDeviceGetAttribute(int *value, int attribute, int)
{
    BEGIN_ANYWHERE("cuDeviceGetAttribute")
    const int sm = setting("RAOT_FAKE_SM", fake::chip);
    *value = attribute == 75   ? sm / 10
             : attribute == 76 ? sm % 10
             : attribute == 18 ? setting("RAOT_FAKE_INTEGRATED", 1)
                               : 0;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int)
{
    BEGIN_ANYWHERE("cuDevicePrimaryCtxRetain")
    driver.retained++;
    *context = &the_context;
    return OK;
}

int cuDevicePrimaryCtxRelease(int)
{
    BEGIN_ANYWHERE("cuDevicePrimaryCtxRelease")
    driver.retained--;
    return OK;
}

int cuCtxGetCurrent(void **context)
{
    BEGIN_ANYWHERE("cuCtxGetCurrent")
    *context = driver.contexts.empty() ? nullptr : driver.contexts.back();
    return OK;
}

int cuCtxGetDevice(int *device)
{
    BEGIN("cuCtxGetDevice")
    *device = 0;
    return OK;
}

int cuCtxPushCurrent_v2(void *context)
{
    BEGIN_ANYWHERE("cuCtxPushCurrent_v2")
    driver.contexts.push_back(context);
    return context == &the_context ? OK : INVALID_CONTEXT;
}

int cuCtxPopCurrent_v2(void **context)
{
    const int error = begin("cuCtxPopCurrent_v2");
    if (driver.contexts.empty()) {
        return INVALID_CONTEXT;
    }
    *context = driver.contexts.back();
    driver.contexts.pop_back(); /* also where it fails: a thread keeps no context by accident */
    return error;
}

int cuModuleLoadData(void **module, const void *image)
{
    BEGIN("cuModuleLoadData")
    const auto *const bytes = static_cast<const unsigned char *>(image);
    /* A cubin is an ELF file; the other is the mark of a fatbin. */
    if (memcmp(bytes, "\177ELF", 4) != 0 && memcmp(bytes, "\120\355\125\272", 4) != 0) {
        return NO_BINARY_FOR_GPU;
    }
    auto made = std::make_unique<int>(0);
    *module = made.get();
    driver.modules[*module] = std::move(made);
    return OK;
}

int cuModuleUnload(void *module)
{
    BEGIN("cuModuleUnload")
    return driver.modules.erase(module) == 1 ? OK : INVALID_VALUE;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    BEGIN("cuModuleGetFunction")
    if (driver.modules.count(module) == 0) {
        return INVALID_VALUE;
    }
    const raot_shim_function *const found = raot_shim_find(name);
    *function = const_cast<raot_shim_function *>(found);
    return found == nullptr ? NOT_FOUND : OK;
}

int cuFuncSetAttribute(void *function, int attribute, int value)
{
    BEGIN("cuFuncSetAttribute")
    /* GPUs of compute capability 8.6 and 8.9 have the least of those with matrix units. */
    if (attribute != 8 || value < 0 || value > 99 * 1024) {
        return INVALID_VALUE;
    }
    driver.most_shared[static_cast<const raot_shim_function *>(function)] =
        static_cast<unsigned int>(value);
    return OK;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    BEGIN("cuMemAlloc_v2")
    Block block;
    const int error = allocate(&block, bytes, false);
    *address = reinterpret_cast<uintptr_t>(block.device);
    return error;
}

int cuMemFree_v2(uint64_t address)
{
    BEGIN("cuMemFree_v2")
    finish_all();
    const auto found = fake::blocks.find(address);
    if (found == fake::blocks.end() || found->second.host != nullptr) {
        return INVALID_VALUE;
    }
    drop(found->second);
    return OK;
}

int cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    BEGIN("cuMemHostAlloc")
    Block block;
    const int error = (flags & 2u) == 0 ? INVALID_VALUE : allocate(&block, bytes, true);
    *pointer = block.host;
    return error;
}

int cuMemFreeHost(void *pointer)
{
    BEGIN("cuMemFreeHost")
    finish_all();
    for (const auto &[address, block] : fake::blocks) {
        if (block.host == pointer && pointer != nullptr) {
            drop(block);
            return OK;
        }
    }
    return INVALID_VALUE;
}

int cuMemHostGetDevicePointer_v2(uint64_t *address, void *pointer, unsigned int)
{
    BEGIN("cuMemHostGetDevicePointer_v2")
    for (const auto &[device, block] : fake::blocks) {
        if (block.host == pointer && pointer != nullptr) {
            *address = device;
            return OK;
        }
    }
    return INVALID_VALUE;
}

int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t bytes, void *stream)
{
    BEGIN("cuMemcpyHtoDAsync_v2")
    if (!inside(target, bytes)) {
        return INVALID_VALUE;
    }
    const auto *const from = static_cast<const unsigned char *>(source);
    for (const auto &[address, block] : fake::blocks) {
        if (block.host != nullptr && from >= block.host && from < block.host + block.bytes) {
            stream_of(stream)->add([=] { /* read when the copy runs */
                                         memcpy(reinterpret_cast<void *>(target), from, bytes);
                                         return OK;
            });
            return OK;
        }
    }
    std::vector<unsigned char> copy(from, from + bytes);
    stream_of(stream)->add([target, copy = std::move(copy)] {
        memcpy(reinterpret_cast<void *>(target), copy.data(), copy.size());
        return OK;
    });
    return OK;
}

/* Waits for all that was started; harnesses read states by it. */
int cuMemcpyDtoH_v2(void *target, uint64_t source, size_t bytes)
{
    BEGIN("cuMemcpyDtoH_v2")
    if (!inside(source, bytes)) {
        return INVALID_VALUE;
    }
    finish_all();
    const fake::Access access;

    memcpy(target, reinterpret_cast<const void *>(source), bytes);
    return OK;
}

int cuMemsetD8Async(uint64_t target, unsigned char value, size_t bytes, void *stream)
{
    BEGIN("cuMemsetD8Async")
    if (!inside(target, bytes)) {
        return INVALID_VALUE;
    }
    stream_of(stream)->add([=] {
        memset(reinterpret_cast<void *>(target), value, bytes);
        return OK;
    });
    return OK;
}

int cuStreamCreate(void **stream, unsigned int)
{
    BEGIN("cuStreamCreate")
    auto made = std::make_unique<Stream>();
    *stream = made.get();
    driver.streams[*stream] = std::move(made);
    return OK;
}

int cuStreamDestroy_v2(void *stream)
{
    BEGIN("cuStreamDestroy_v2")
    finish_all();
    return driver.streams.erase(stream) == 1 ? OK : INVALID_VALUE;
}

int cuStreamSynchronize(void *stream)
{
    BEGIN("cuStreamSynchronize")
    return finish(*stream_of(stream));
}

int cuGraphCreate(void **graph, unsigned int flags)
{
    BEGIN("cuGraphCreate")
    auto made = std::make_unique<Graph>();
    *graph = made.get();
    driver.graphs[*graph] = std::move(made);
    return flags == 0 ? OK : INVALID_VALUE;
}

int cuGraphDestroy(void *graph)
{
    BEGIN("cuGraphDestroy")
    return driver.graphs.erase(graph) == 1 ? OK : INVALID_VALUE;
}

int cuGraphAddKernelNode(void **node, void *graph, void *const *after, size_t count,
                         const Parameters *parameters)
{
    BEGIN("cuGraphAddKernelNode")
    auto &nodes = static_cast<Graph *>(graph)->nodes;
    auto made = std::make_unique<Node>();
    /* A chain: each node is behind the one before it. */
    if (count != (nodes.empty() ? 0u : 1u) || (count == 1 && *after != nodes.back().get())) {
        return INVALID_VALUE;
    }
    const int error = node_of(made.get(), parameters);
    *node = made.get();
    nodes.push_back(std::move(made));
    return error;
}

int cuGraphInstantiate(void **executable, void *graph, void **, char *, size_t)
{
    BEGIN("cuGraphInstantiate")
    auto made = std::make_unique<Executable>();
    for (const auto &node : static_cast<Graph *>(graph)->nodes) {
        made->nodes[node.get()] = *node;
        made->order.push_back(node.get());
    }
    *executable = made.get();
    driver.executables[*executable] = std::move(made);
    return OK;
}

int cuGraphExecDestroy(void *executable)
{
    BEGIN("cuGraphExecDestroy")
    return driver.executables.erase(executable) == 1 ? OK : INVALID_VALUE;
}

int cuGraphExecKernelNodeSetParams(void *executable, void *node, const Parameters *parameters)
{
    BEGIN("cuGraphExecKernelNodeSetParams")
    auto &nodes = static_cast<Executable *>(executable)->nodes;
    const auto found = nodes.find(static_cast<const Node *>(node));
    if (found == nodes.end() || found->second.kernel != parameters->function) {
        return INVALID_VALUE; /* CUDA 10 cannot change the function of a node */
    }
    return node_of(&found->second, parameters);
}

int cuGraphLaunch(void *executable, void *stream)
{
    BEGIN("cuGraphLaunch")
    const auto *const made = static_cast<Executable *>(executable);
    for (const Node *node : made->order) {
        stream_of(stream)->add([copy = made->nodes.at(node)] { return launch(copy); }, executable);
    }
    return OK;
}

} // extern "C"
