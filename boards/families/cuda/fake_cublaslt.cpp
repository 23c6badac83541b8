/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_cublaslt.cpp - the functions of cuBLASLt that generated projects use, and events of the
 * driver, on the CPU.
 *
 * Products are work of a stream of the fake driver. Attributes are checked as the documentation
 * has them. An algorithm serves the types, layouts and alignment of rows for which it was asked;
 * with RAOT_FAKE_ALGORITHMS=0 there is none. All of the workspace is written.
 */
#include "fake_state.h"

#include <cstdint>
#include <cstring>

using namespace fake;

namespace
{

enum Status { INVALID_VALUE_LT = 7, NOT_SUPPORTED = 15 };
enum Type { F32 = 0, F16 = 2, BF16 = 14 };

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t pitch;
    int32_t batch = 1;
    int64_t apart = 0;
};

struct Operation {
    int32_t transposed[2] = {0, 0};
    int32_t epilogue = 1;
    uint64_t bias = 0;
};

struct Preference {
    uint64_t workspace = 0;
    uint32_t alignment[4] = {256, 256, 256, 256};
};

struct Found { /* cublasLtMatmulHeuristicResult_t */
    uint64_t algorithm[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};

std::map<void *, std::unique_ptr<Layout>> layouts;
std::map<void *, std::unique_ptr<Operation>> operations;
std::map<void *, std::unique_ptr<Preference>> preferences;
std::map<void *, std::unique_ptr<int>> handles, events;

template <typename T> int make(std::map<void *, std::unique_ptr<T>> &all, void **made, T value = {})
{
    auto owned = std::make_unique<T>(value);
    *made = owned.get();
    all[*made] = std::move(owned);
    return OK;
}

template <typename T> int drop_one(std::map<void *, std::unique_ptr<T>> &all, void *one)
{
    return all.erase(one) == 1 ? 0 : INVALID_VALUE_LT;
}

template <typename T> int set(T *target, const void *value, size_t bytes)
{
    if (bytes != sizeof *target) {
        return INVALID_VALUE_LT;
    }
    memcpy(target, value, bytes);
    return OK;
}

size_t size_of(int type)
{
    return type == F32 ? 4 : 2;
}

float number(int type, uintptr_t at)
{
    uint16_t half;
    uint32_t bits;
    float value;
    if (type == F32) {
        memcpy(&value, reinterpret_cast<const void *>(at), 4);
        return value;
    }
    memcpy(&half, reinterpret_cast<const void *>(at), 2);
    if (type == F16) {
        _Float16 small;
        memcpy(&small, &half, 2);
        return static_cast<float>(small);
    }
    bits = static_cast<uint32_t>(half) << 16;
    memcpy(&value, &bits, 4);
    return value;
}

void store(int type, uintptr_t at, float value)
{
    auto *const place = reinterpret_cast<void *>(at);
    uint32_t bits;
    if (type == F32) {
        memcpy(place, &value, 4);
    } else if (type == F16) {
        const auto small = static_cast<_Float16>(value);
        memcpy(place, &small, 2);
    } else {
        memcpy(&bits, &value, 4);
        const auto half = static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
        memcpy(place, &half, 2);
    }
}

/* The element of a batch, a row and a column. */
uintptr_t element(const Layout &layout, uintptr_t start, int64_t batch, int64_t row, int64_t column)
{
    const int64_t at = batch * layout.apart + column * layout.pitch + row;
    return start + static_cast<uintptr_t>(at) * size_of(layout.type);
}

/* Whether layouts are those of a product, and all their elements exist. */
bool fits(const Operation &operation, const Layout &a, const Layout &b, const Layout &d)
{
    const bool first = operation.transposed[0] != 0, second = operation.transposed[1] != 0;
    for (const Layout *one : {&a, &b, &d}) {
        if (one->rows == 0 || one->columns == 0 || one->batch < 1 || one->batch != d.batch ||
            one->pitch < static_cast<int64_t>(one->rows)) {
            return false;
        }
    }
    return (first ? a.columns : a.rows) == d.rows && (second ? b.rows : b.columns) == d.columns &&
           (first ? a.rows : a.columns) == (second ? b.columns : b.rows) && a.type == b.type &&
           (d.type == a.type || d.type == F32);
}

/* What an algorithm depends on here. */
uint64_t kind_of(const Operation &operation, const Layout &a, const Layout &b, const Layout &d)
{
    uint64_t kind = static_cast<uint64_t>(a.type * 16 + d.type) * 2 + 1;
    for (const Layout *one : {&a, &b, &d}) {
        const auto line = static_cast<uint64_t>(one->pitch) * size_of(one->type);
        kind = kind * 2 + (line % 16 == 0 ? 1 : 0);
    }
    const int32_t bits = operation.transposed[0] * 2 + operation.transposed[1];
    return kind * 8 + static_cast<uint64_t>(operation.epilogue) * 1024 +
           static_cast<uint64_t>(bits);
}

bool held(const Layout &layout, uint64_t start)
{
    const auto rows = static_cast<int64_t>(layout.rows) - 1;
    const auto columns = static_cast<int64_t>(layout.columns) - 1;
    const uintptr_t last = element(layout, start, layout.batch - 1, rows, columns);
    return start % 16 == 0 && inside(start, last + size_of(layout.type) - start);
}

struct Product {
    Operation operation;
    Layout a, b, d;
    uint64_t from[2], to, workspace;
    size_t workspace_bytes;
};

int multiply(const Product &p)
{
    const bool first = p.operation.transposed[0] != 0, second = p.operation.transposed[1] != 0;
    const auto steps = static_cast<int64_t>(first ? p.a.rows : p.a.columns);
    memset(reinterpret_cast<void *>(p.workspace), 0xa5, p.workspace_bytes);
    for (int64_t n = 0; n < p.d.batch; n++) {
        for (int64_t column = 0; column < static_cast<int64_t>(p.d.columns); column++) {
            for (int64_t row = 0; row < static_cast<int64_t>(p.d.rows); row++) {
                float sum = 0.0f;
                for (int64_t k = steps - 1; k >= 0; k--) { /* an order that is not ours */
                    sum += number(p.a.type,
                                  element(p.a, p.from[0], n, first ? k : row, first ? row : k)) *
                           number(p.b.type, element(p.b, p.from[1], n, second ? column : k,
                                                    second ? k : column));
                }
                if (p.operation.epilogue == 4) {
                    const size_t offset = static_cast<size_t>(row) * size_of(p.d.type);
                    sum += number(p.d.type, p.operation.bias + offset);
                }
                store(p.d.type, element(p.d, p.to, n, row, column), sum);
            }
        }
    }
    return OK;
}

} // namespace

namespace fake
{

int library_live()
{
    return static_cast<int>(layouts.size() + operations.size() + preferences.size() +
                            handles.size() + events.size());
}

void library_reset()
{
    layouts.clear();
    operations.clear();
    preferences.clear();
    handles.clear();
    events.clear();
}

} // namespace fake

extern "C" {

int cublasLtCreate(void **handle)
{
    BEGIN("cublasLtCreate")
    return make(handles, handle);
}

int cublasLtDestroy(void *handle)
{
    BEGIN("cublasLtDestroy")
    return drop_one(handles, handle);
}

int cublasLtMatmulDescCreate(void **operation, int compute, int scale)
{
    BEGIN("cublasLtMatmulDescCreate")
    return (compute == 68 || compute == 77) && scale == F32 ? make(operations, operation)
                                                            : NOT_SUPPORTED;
}

int cublasLtMatmulDescSetAttribute(void *operation, int attribute, const void *value, size_t bytes)
{
    BEGIN("cublasLtMatmulDescSetAttribute")
    auto *const made = static_cast<Operation *>(operation);
    switch (attribute) {
    case 3:
    case 4:
        return set(&made->transposed[attribute - 3], value, bytes);
    case 7:
        return set(&made->epilogue, value, bytes);
    case 8:
        return set(&made->bias, value, bytes);
    default:
        return INVALID_VALUE_LT;
    }
}

int cublasLtMatmulDescDestroy(void *operation)
{
    BEGIN("cublasLtMatmulDescDestroy")
    return drop_one(operations, operation);
}

int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns,
                               int64_t pitch)
{
    BEGIN("cublasLtMatrixLayoutCreate")
    return make(layouts, layout, Layout{type, rows, columns, pitch});
}

int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value, size_t bytes)
{
    BEGIN("cublasLtMatrixLayoutSetAttribute")
    auto *const made = static_cast<Layout *>(layout);
    switch (attribute) {
    case 2:
        return set(&made->rows, value, bytes);
    case 3:
        return set(&made->columns, value, bytes);
    case 4:
        return set(&made->pitch, value, bytes);
    case 5:
        return set(&made->batch, value, bytes);
    case 6:
        return set(&made->apart, value, bytes);
    default:
        return INVALID_VALUE_LT;
    }
}

int cublasLtMatrixLayoutDestroy(void *layout)
{
    BEGIN("cublasLtMatrixLayoutDestroy")
    return drop_one(layouts, layout);
}

int cublasLtMatmulPreferenceCreate(void **preference)
{
    BEGIN("cublasLtMatmulPreferenceCreate")
    return make(preferences, preference);
}

int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value,
                                         size_t bytes)
{
    BEGIN("cublasLtMatmulPreferenceSetAttribute")
    auto *const made = static_cast<Preference *>(preference);
    if (attribute == 1) {
        return set(&made->workspace, value, bytes);
    }
    return attribute >= 5 && attribute <= 8 ? set(&made->alignment[attribute - 5], value, bytes)
                                            : static_cast<int>(INVALID_VALUE_LT);
}

int cublasLtMatmulPreferenceDestroy(void *preference)
{
    BEGIN("cublasLtMatmulPreferenceDestroy")
    return drop_one(preferences, preference);
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c,
                                   void *d, void *preference, int most, Found *found, int *count)
{
    BEGIN("cublasLtMatmulAlgoGetHeuristic")
    const auto *const given = static_cast<const Preference *>(preference);
    const auto &how = *static_cast<const Operation *>(operation);
    const auto &one = *static_cast<const Layout *>(a), &two = *static_cast<const Layout *>(b),
               &result = *static_cast<const Layout *>(d);
    *count = 0;
    if (handles.count(handle) == 0 || most < 1 || c != d || !fits(how, one, two, result)) {
        return INVALID_VALUE_LT;
    }
    for (const uint32_t alignment : given->alignment) {
        if (alignment != 16) { /* that of all values of a project */
            return INVALID_VALUE_LT;
        }
    }
    if (setting("RAOT_FAKE_ALGORITHMS", 1) == 0) {
        return NOT_SUPPORTED;
    }
    *found = {};
    found->algorithm[0] = kind_of(how, one, two, result);
    found->workspace = given->workspace;
    *count = 1;
    return OK;
}

int cublasLtMatmulAlgoCheck(void *handle, void *operation, void *a, void *b, void *c, void *d,
                            const uint64_t *algorithm, Found *found)
{
    BEGIN("cublasLtMatmulAlgoCheck")
    const auto &how = *static_cast<const Operation *>(operation);
    const auto &one = *static_cast<const Layout *>(a), &two = *static_cast<const Layout *>(b),
               &result = *static_cast<const Layout *>(d);
    if (handles.count(handle) == 0 || c != d || !fits(how, one, two, result) ||
        algorithm[0] != kind_of(how, one, two, result)) {
        return NOT_SUPPORTED;
    }
    *found = {};
    return OK;
}

int cublasLtMatmul(void *handle, void *operation, const void *alpha, const void *a, void *a_layout,
                   const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                   void *d, void *d_layout, const uint64_t *algorithm, void *workspace,
                   size_t bytes, void *stream)
{
    BEGIN("cublasLtMatmul")
    Product p = {*static_cast<const Operation *>(operation),
                 *static_cast<const Layout *>(a_layout),
                 *static_cast<const Layout *>(b_layout),
                 *static_cast<const Layout *>(d_layout),
                 {reinterpret_cast<uintptr_t>(a), reinterpret_cast<uintptr_t>(b)},
                 reinterpret_cast<uintptr_t>(d),
                 reinterpret_cast<uintptr_t>(workspace),
                 bytes};
    float scale[2];
    memcpy(&scale[0], alpha, 4);
    memcpy(&scale[1], beta, 4);
    if (handles.count(handle) == 0 || scale[0] != 1.0f || scale[1] != 0.0f || c != d ||
        c_layout != d_layout || !fits(p.operation, p.a, p.b, p.d) ||
        algorithm[0] != kind_of(p.operation, p.a, p.b, p.d)) {
        return INVALID_VALUE_LT;
    }
    if (!held(p.a, p.from[0]) || !held(p.b, p.from[1]) || !held(p.d, p.to) ||
        (bytes > 0 && !inside(p.workspace, bytes)) ||
        (p.operation.epilogue == 4 && !inside(p.operation.bias, p.d.rows * size_of(p.d.type)))) {
        return INVALID_VALUE_LT;
    }
    stream_of(stream)->add([p] { return multiply(p); });
    return OK;
}

int cuEventCreate(void **event, unsigned int flags)
{
    BEGIN("cuEventCreate")
    return flags == 2 ? make(events, event, -1) : static_cast<int>(INVALID_VALUE);
}

int cuEventDestroy_v2(void *event)
{
    BEGIN("cuEventDestroy_v2")
    return drop_one(events, event);
}

int cuEventRecord(void *event, void *)
{
    BEGIN("cuEventRecord")
    *events.at(event) = driver.count;
    return OK;
}

int cuStreamWaitEvent(void *stream, void *event, unsigned int)
{
    BEGIN("cuStreamWaitEvent")
    if (const int number = *events.at(event); number >= 0) {
        stream_of(stream)->add([number] {
            finish_before(number);
            return OK;
        });
    }
    return OK;
}

} // extern "C"
