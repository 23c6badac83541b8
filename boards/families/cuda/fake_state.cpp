/* SPDX-License-Identifier: Apache-2.0 */
/* fake_state.cpp - see fake_state.h. */
#include "fake_state.h"

#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fake
{

Driver driver;

void Stream::add(std::function<int()> act, const void *executable)
{
    work.push_back({driver.count++, executable, std::move(act)});
}

int setting(const char *name, int otherwise)
{
    const char *const text = getenv(name);
    return text == nullptr ? otherwise : atoi(text);
}

int begin(const char *name, bool context)
{
    if (!driver.asked) {
        driver.asked = true;
        const char *const text = getenv("RAOT_FAKE_FAIL");
        const char *const colon = text == nullptr ? nullptr : strchr(text, ':');
        if (colon != nullptr) {
            driver.failures[std::string(text, colon)].nth = atoi(colon + 1);
        }
    }
    driver.calls[name]++;
    Failure &failure = driver.failures[name];
    if (failure.nth > 0 && --failure.nth == 0) {
        return failure.error;
    }
    if (!driver.initialized) {
        return strcmp(name, "cuInit") == 0 ? OK : NOT_INITIALIZED;
    }
    if (context && driver.contexts.empty()) {
        return INVALID_CONTEXT;
    }
    return driver.lost;
}

int launch(const Node &node)
{
    std::vector<void *> given;
    for (const auto &value : node.values) {
        uintptr_t address = 0;
        if (value.size() == sizeof address) { /* numbers have 32 bits */
            memcpy(&address, value.data(), sizeof address);
            /* An empty array may have no address. */
            if (address != 0 && (block_at(address) == nullptr || address % 16 != 0)) {
                fprintf(stderr, "fake driver: parameter %zu is no aligned memory of the GPU\n",
                        given.size());
                return ILLEGAL_ADDRESS;
            }
        }
        given.push_back(const_cast<unsigned char *>(value.data()));
    }
    const char *const problem =
        raot_shim_launch(node.kernel, node.grid, static_cast<int32_t>(node.block), given.data(),
                         static_cast<uint64_t>(driver.calls["cuGraphLaunch"]));
    if (problem != nullptr) {
        fprintf(stderr, "fake driver: %s\n", problem);
        return LAUNCH_FAILED;
    }
    return OK;
}

namespace
{

/* Does what a stream has to do before `number`. Launches of one graph run in their order, also in
 * several streams. */
void advance(Stream &stream, int number)
{
    while (!stream.work.empty() && stream.work.front().number < number) {
        const Work next = stream.work.front();
        stream.work.erase(stream.work.begin());
        for (auto &[handle, other] : driver.streams) {
            int last = -1;
            for (const Work &one : other->work) {
                const bool same = next.executable != nullptr && one.executable == next.executable;
                last = same && one.number < next.number ? one.number : last;
            }
            advance(*other, last + 1);
        }
        if (driver.lost == OK) {
            driver.lost = next.act();
        }
    }
}

} // namespace

int finish(Stream &stream)
{
    const Access access;
    advance(stream, INT_MAX);
    check_guards();
    return driver.lost;
}

void finish_all()
{
    for (auto &[handle, stream] : driver.streams) {
        finish(*stream);
    }
}

void finish_before(int number)
{
    for (auto &[handle, stream] : driver.streams) {
        advance(*stream, number);
    }
}

int node_of(Node *node, const Parameters *given)
{
    if (given->grid[0] == 0 || given->grid[1] != 1 || given->grid[2] != 1 || given->block[0] == 0 ||
        given->block[0] > 1024 || given->block[1] != 1 || given->block[2] != 1 ||
        given->extra != nullptr) {
        return INVALID_VALUE;
    }
    node->kernel = static_cast<const raot_shim_function *>(given->function);
    const auto wanted = static_cast<unsigned int>(raot_shim_shared_bytes(node->kernel));
    if (given->shared_bytes != wanted || wanted > driver.most_shared[node->kernel]) {
        return INVALID_VALUE;
    }
    node->grid = given->grid[0];
    node->block = given->block[0];
    node->values.clear();
    for (int32_t i = 0; i < raot_shim_parameter_count(node->kernel); i++) {
        const auto *const bytes = static_cast<unsigned char *>(given->parameters[i]);
        node->values.emplace_back(bytes, bytes + raot_shim_parameter_bytes(node->kernel, i));
    }
    return OK;
}

Stream *stream_of(void *handle)
{
    auto &found = driver.streams[handle];
    if (found == nullptr) {
        found = std::make_unique<Stream>(); /* the default stream, and those of a test */
    }
    return found.get();
}

} // namespace fake
