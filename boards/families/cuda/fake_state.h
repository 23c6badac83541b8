/* SPDX-License-Identifier: Apache-2.0 */
/* fake_state.h - what the fake driver knows: its things, and the work of streams. */
#ifndef FAKE_STATE_H
#define FAKE_STATE_H

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fake_memory.h"
#include "raot_shim_host.h"

namespace fake
{

/* The `nth` next call of a function fails with an error, 0 for none. */
struct Failure {
    int nth = 0;
    int error = 999;
};

struct Node {
    const raot_shim_function *kernel = nullptr;
    unsigned int grid = 0;
    unsigned int block = 0;
    std::vector<std::vector<unsigned char>> values;
};

struct Graph {
    std::vector<std::unique_ptr<Node>> nodes;
};

struct Executable {
    std::map<const Node *, Node> nodes;
    std::vector<const Node *> order;
};

/* Something to do in a stream: its number among all, and the graph that it launches, or null. */
struct Work {
    int number;
    const void *executable;
    std::function<int()> act;
};

struct Stream {
    std::vector<Work> work;

    void add(std::function<int()> act, const void *executable = nullptr);
};

struct Parameters { /* CUDA_KERNEL_NODE_PARAMS of CUDA 10.1 */
    void *function;
    unsigned int grid[3];
    unsigned int block[3];
    unsigned int shared_bytes;
    void **parameters;
    void **extra;
};

struct Driver {
    bool initialized = false;
    int retained = 0;
    int count = 0; /* of works */
    int lost = OK; /* after a failed kernel every function returns this */
    std::vector<void *> contexts;
    std::map<void *, std::unique_ptr<Graph>> graphs;
    std::map<void *, std::unique_ptr<Executable>> executables;
    std::map<void *, std::unique_ptr<Stream>> streams;
    std::map<void *, std::unique_ptr<int>> modules;
    std::map<const raot_shim_function *, unsigned int> most_shared; /* that launches may ask for */
    std::map<std::string, int> calls;
    std::map<std::string, Failure> failures;
    bool asked = false;
};

extern Driver driver;

/* What the kernels are for, if the environment says nothing else: ten times the compute capability,
   and the version of CUDA of the driver. Defined with the kernels. */
extern const int chip, release;

/* A number in the environment. */
int setting(const char *name, int otherwise);

/* Counts a call; what it fails with, or OK. */
int begin(const char *name, bool context = true);

/* Does all that a stream, or each stream, has to do. */
int finish(Stream &stream);
void finish_all();

/* Does what all streams had to do before the work of this number. */
void finish_before(int number);

/* Runs the kernel of a node. */
int launch(const Node &node);

/* Sets a node to the parameters of a launch. */
int node_of(Node *node, const Parameters *given);

Stream *stream_of(void *handle);

/* Things of the fake cuBLASLt that were not given back; gives all of them back. */
int library_live();
void library_reset();

} // namespace fake

#define BEGIN(name)                                   \
    if (const int error = begin(name); error != OK) { \
        return error;                                 \
    }
#define BEGIN_ANYWHERE(name)                                 \
    if (const int error = begin(name, false); error != OK) { \
        return error;                                        \
    }

#endif
