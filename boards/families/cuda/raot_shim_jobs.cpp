/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raot_shim_jobs.cpp - runs launches that a file lists. For tests: with the sanitizers, an access
 * outside of a buffer ends the program.
 *
 *     buffer <bytes>                     the next buffer; the next bytes of the data are its
 * contents empty <bytes>                      a buffer whose bytes are all 255 launch <name>
 * <blocks> <threads> <seed> <arguments>: b<buffer> or i<number> result <buffer> writes its bytes to
 * the output forget                             frees all buffers
 *
 * Usage: jobs <list> <data> <output>
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "raot_shim_host.h"

namespace
{

struct Buffer {
    size_t bytes;
    void *memory;
};

std::vector<Buffer> buffers;

[[noreturn]] void refuse(const std::string &text)
{
    std::cerr << "raot_shim: " << text << "\n";
    std::exit(3);
}

void add(size_t bytes, std::istream *data)
{
    void *memory = nullptr;

    if (posix_memalign(&memory, 16u, bytes == 0u ? 1u : bytes) != 0) {
        refuse("no memory");
    }
    std::memset(memory, 0xff, bytes);
    if (data != nullptr) {
        data->read(static_cast<char *>(memory), (std::streamsize)bytes);
    }
    buffers.push_back({bytes, memory});
}

void launch(std::istringstream &words)
{
    std::string name;
    std::string word;
    long long blocks = 0;
    int threads = 0;
    unsigned long long seed = 0u;
    std::vector<void *> pointers;
    std::vector<int32_t> numbers;
    std::vector<void *> parameters;
    std::vector<bool> is_number;

    words >> name >> blocks >> threads >> seed;
    while (words >> word) {
        const long long value = std::stoll(word.substr(1));

        is_number.push_back(word[0] == 'i');
        numbers.push_back((int32_t)value);
        pointers.push_back(word[0] == 'i' ? nullptr : buffers.at((size_t)value).memory);
    }
    for (size_t i = 0u; i < numbers.size(); i++) {
        parameters.push_back(is_number[i] ? (void *)&numbers[i] : (void *)&pointers[i]);
    }

    const raot_shim_function *const function = raot_shim_find(name.c_str());

    if (function == nullptr) {
        refuse("no kernel " + name);
    }
    if (raot_shim_parameter_count(function) != (int32_t)parameters.size()) {
        refuse(name + " has another number of parameters");
    }

    const char *const problem =
        raot_shim_launch(function, blocks, threads, parameters.data(), seed);

    if (problem != nullptr) {
        refuse(problem);
    }
}

} // namespace

int main(int count, char **arguments)
{
    if (count != 4) {
        refuse("jobs <list> <data> <output>");
    }

    std::ifstream list(arguments[1]);
    std::ifstream data(arguments[2], std::ios::binary);
    std::ofstream output(arguments[3], std::ios::binary);
    std::string line;

    while (std::getline(list, line)) {
        std::istringstream words(line);
        std::string what;
        size_t number = 0u;

        words >> what;
        if (what == "launch") {
            launch(words);
        } else if (what == "forget") {
            for (const Buffer &buffer : buffers) {
                std::free(buffer.memory);
            }
            buffers.clear();
        } else if (words >> number) {
            if (what == "result") {
                const Buffer &buffer = buffers.at(number);

                output.write(static_cast<const char *>(buffer.memory),
                             (std::streamsize)buffer.bytes);
            } else {
                add(number, what == "buffer" ? &data : nullptr);
            }
        }
    }
    return output.good() ? 0 : 3;
}
