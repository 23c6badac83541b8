/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window.h - a row of im2col: elements of an image, and zeros outside it.
 *
 *     to[i] = first <= i && i < last ? from[offset + i * step] : 0      for 0 <= i < count
 *
 * with 0 <= first <= last <= count. Nothing else is read or written. The elements read do not
 * overlap `to`.
 */
#ifndef RAOT_WINDOW_H
#define RAOT_WINDOW_H

#include <stdint.h>

#include "assembly.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "mve.h"

#if defined(__AVX2__)
/* Lane i is all ones where low <= i < high. */
static inline __m256i raot_lanes_between(int32_t low, int32_t high)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(low), lane);

    return _mm256_andnot_si256(below, _mm256_cmpgt_epi32(_mm256_set1_epi32(high), lane));
}

/* Fewer than eight elements; masked stores are slow on some cores. */
static inline void raot_store_some(float *to, __m256 value, int32_t count)
{
    __m128 part = _mm256_castps256_ps128(value);

    if (count >= 4) {
        _mm_storeu_ps(to, part);
        part = _mm256_extractf128_ps(value, 1);
        to += 4;
        count -= 4;
    }
    if (count >= 2) {
        _mm_storel_pi((__m64 *)(void *)to, part);
        part = _mm_movehl_ps(part, part);
        to += 2;
        count -= 2;
    }
    if (count > 0) {
        _mm_store_ss(to, part);
    }
}

static inline void raot_window_side_by_side(float *to, int32_t count, int32_t first, int32_t last,
                                            const float *from, int32_t offset)
{
    int32_t i = 0;

    for (; i + 8 <= count; i += 8) {
        if (first <= i && i + 8 <= last) {
            _mm256_storeu_ps(to + i, _mm256_loadu_ps(from + (offset + i)));
        } else {
            const __m256i inside = raot_lanes_between(first - i, last - i);
            _mm256_storeu_ps(to + i, _mm256_maskload_ps(from + (offset + i), inside));
        }
    }
    if (i < count) {
        const __m256i inside = raot_lanes_between(first - i, last - i);
        const __m256 value = _mm256_maskload_ps(from + (offset + i), inside);
        raot_store_some(to + i, value, count - i);
    }
}

/* Every second element: eight of fifteen. */
static inline void raot_every_second(float *to, const float *from)
{
    const __m256 a = _mm256_loadu_ps(from);
    const __m256 b = _mm256_loadu_ps(from + 7);
    const __m256d mixed = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xD8));

    _mm256_storeu_ps(to, _mm256_castpd_ps(_mm256_permute4x64_pd(mixed, 0xD8)));
}
#endif

#if defined(RAOT_MVE_F32)
/* to[i] = from[i * step] for i < count. The last four are copied on their own: they may overlap
   those before. */
static inline void raot_window_copy(float *to, int32_t count, const float *from, int32_t step)
{
    if (count < 4) {
        for (; count > 0; count--) {
            *to++ = *from;
            from += step;
        }
    } else if (step == 1) {
        const float32x4_t last = vld1q_f32(from + (count - 4));
        vst1q_f32(to + (count - 4), last);
        for (uint32_t groups = (uint32_t)(count - 1) / 4u; groups > 0u; groups--) {
            vst1q_f32(to, vld1q_f32(from));
            from += 4;
            to += 4;
        }
    } else {
        const uint32x4_t steps = vmulq_n_u32(vidupq_n_u32(0u, 1), (uint32_t)step);
        const float *const end = from + (count - 4) * step;
        vst1q_f32(to + (count - 4), vldrwq_gather_shifted_offset_f32(end, steps));
        for (uint32_t groups = (uint32_t)(count - 1) / 4u; groups > 0u; groups--) {
            vst1q_f32(to, vldrwq_gather_shifted_offset_f32(from, steps));
            from += 4 * step;
            to += 4;
        }
    }
}
#endif

#if defined(RAOT_ASM_INLINE) && defined(__thumb2__) && __ARM_ARCH_PROFILE == 'M' && \
    defined(__ARM_FP) && !defined(RAOT_MVE_F32) && !defined(__OPTIMIZE_SIZE__)
#define RAOT_WINDOW_VFP
/*
 * to[i] = from[i * step] for i < count. One instruction loads 16 neighbors, eight, or four; the
 * last ones are copied on their own: they may overlap those before.
 */
#define RAOT_WINDOW_COPY(N, LAST)                                                             \
    do {                                                                                      \
        int32_t groups = (count - 1) / (N);                                                   \
        const float *const last = from + (count - (N));                                       \
        float *const end = to + (count - (N));                                                \
        __asm__ volatile("cmp %[groups], #0\n beq 2f\n"                                       \
                         "1: vldmia %[from]!, {s0-" LAST "}\n subs %[groups], #1\n"           \
                         "vstmia %[to]!, {s0-" LAST "}\n bne 1b\n"                            \
                         "2: vldmia %[last], {s0-" LAST "}\n"                                 \
                         "vstmia %[end], {s0-" LAST "}\n"                                     \
                         : [to] "+&r"(to), [from] "+&r"(from), [groups] "+&r"(groups)         \
                         : [last] "r"(last), [end] "r"(end)                                   \
                         : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", \
                           "s11", "s12", "s13", "s14", "s15", "memory", "cc");                \
    } while (0)
__attribute__((noinline, unused)) static void raot_window_copy_vfp(float *to, int32_t count,
                                                                   const float *from, int32_t step)
{
    if (step == 1 && count >= 16) {
        RAOT_WINDOW_COPY(16, "s15");
        return;
    }
    if (step == 1 && count >= 8) {
        RAOT_WINDOW_COPY(8, "s7");
        return;
    }
    if (step == 1 && count >= 4) {
        RAOT_WINDOW_COPY(4, "s3");
        return;
    }
    for (; count >= 4; count -= 4) {
        const float a = from[0];
        const float b = from[step];
        const float c = from[2 * step];
        const float d = from[3 * step];
        to[0] = a;
        to[1] = b;
        to[2] = c;
        to[3] = d;
        to += 4;
        from += 4 * step;
    }
    for (; count > 0; count--) {
        *to++ = *from;
        from += step;
    }
}
#endif

/* A loop, because a call of memset costs more for a few elements. */
static inline void raot_window_zeros(float *to, int32_t first, int32_t last)
{
    for (int32_t i = first; i < last; i++) {
        to[i] = 0.0f;
#if defined(RAOT_ASM_INLINE) && defined(__arm__)
        __asm__ volatile("");
#endif
    }
}

static inline void raot_window_f32(float *to, int32_t count, int32_t first, int32_t last,
                                   const float *from, int32_t offset, int32_t step)
{
#if defined(__AVX2__)
    if (step == 1) {
        raot_window_side_by_side(to, count, first, last, from, offset);
        return;
    }
#endif
    raot_window_zeros(to, 0, first);
#if defined(RAOT_MVE_F32)
    raot_window_copy(to + first, last - first, from + (offset + first * step), step);
#elif defined(RAOT_WINDOW_VFP)
    if (first < last) {
        raot_window_copy_vfp(to + first, last - first, from + (offset + first * step), step);
    }
#else
    int32_t i = first;
#if defined(__AVX2__)
    for (; step == 2 && i + 8 <= last; i += 8) {
        raot_every_second(to + i, from + (offset + i * step));
    }
#endif
    for (; i < last; i++) {
        to[i] = from[offset + i * step];
    }
#endif
    raot_window_zeros(to, last, count);
}

#endif
