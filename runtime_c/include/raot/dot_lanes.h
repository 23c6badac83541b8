/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot_lanes.h - vectors of 32-bit sums of products on x86-64, of the widest instructions that the
 * compiler may use.
 */
#ifndef RAOT_DOT_LANES_H
#define RAOT_DOT_LANES_H

#include <stdint.h>

#include "assembly.h"

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

/*
 * raot_dots_add adds the products of pairs of 16-bit integers to each sum, raot_dots_four those of
 * four unsigned bytes with four signed ones, where there is such an instruction (VPDPBUSD).
 *
 * Sums in registers: RAOT_DOTS_LANES per vector, RAOT_DOTS_WIDE vectors per row (RAOT_DOTS_STEP
 * sums), RAOT_DOTS_HIGH rows.
 */
#if defined(__AVX512BW__)
#define RAOT_DOTS_LANES 16
#define RAOT_DOTS_WIDE 1
#define RAOT_DOTS_STEP 16
#define RAOT_DOTS_HIGH 8
typedef __m512i raot_dots;

static inline raot_dots raot_dots_load(const void *from)
{
    return _mm512_loadu_si512(from);
}

static inline void raot_dots_store(void *to, raot_dots value)
{
    _mm512_storeu_si512(to, value);
}

static inline raot_dots raot_dots_all(int32_t value)
{
    return _mm512_set1_epi32(value);
}

static inline raot_dots raot_dots_plus(raot_dots a, raot_dots b)
{
    return _mm512_add_epi32(a, b);
}

static inline raot_dots raot_dots_add(raot_dots sum, raot_dots a, raot_dots b)
{
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(sum, a, b);
#else
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
#endif
}

#if defined(__AVX512VNNI__)
#define RAOT_DOTS_FOUR
static inline raot_dots raot_dots_four(raot_dots sum, raot_dots positive, raot_dots b)
{
    return _mm512_dpbusd_epi32(sum, positive, b);
}

/* Pairs of 0..255 in 16 bits, and the pairs that follow them, as four bytes for each sum. */
static inline raot_dots raot_dots_bytes(raot_dots first, raot_dots last)
{
    const __m128i order = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);

    return _mm512_shuffle_epi8(_mm512_packus_epi16(first, last), _mm512_broadcast_i32x4(order));
}
#endif

/* The first and the second signed byte of each 16 bits, times 256. */
static inline raot_dots raot_dots_even_by_256(raot_dots bytes)
{
    return _mm512_slli_epi16(bytes, 8);
}

static inline raot_dots raot_dots_odd_by_256(raot_dots bytes)
{
    return _mm512_andnot_si512(_mm512_set1_epi16(0xFF), bytes);
}

static inline raot_dots raot_dots_by_256(raot_dots sums)
{
    return _mm512_srai_epi32(sums, 8);
}

#elif defined(__AVX2__)
#define RAOT_DOTS_LANES 8
#define RAOT_DOTS_WIDE 2
#define RAOT_DOTS_STEP 16
#define RAOT_DOTS_HIGH 6
typedef __m256i raot_dots;

static inline raot_dots raot_dots_load(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

static inline void raot_dots_store(void *to, raot_dots value)
{
    _mm256_storeu_si256((__m256i *)to, value);
}

static inline raot_dots raot_dots_all(int32_t value)
{
    return _mm256_set1_epi32(value);
}

static inline raot_dots raot_dots_plus(raot_dots a, raot_dots b)
{
    return _mm256_add_epi32(a, b);
}

static inline raot_dots raot_dots_add(raot_dots sum, raot_dots a, raot_dots b)
{
#if defined(__AVXVNNI__)
    return _mm256_dpwssd_avx_epi32(sum, a, b);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
}

#if defined(__AVXVNNI__)
#define RAOT_DOTS_FOUR
static inline raot_dots raot_dots_four(raot_dots sum, raot_dots positive, raot_dots b)
{
    return _mm256_dpbusd_avx_epi32(sum, positive, b);
}

/* Pairs of 0..255 in 16 bits, and the pairs that follow them, as four bytes for each sum. */
static inline raot_dots raot_dots_bytes(raot_dots first, raot_dots last)
{
    const __m128i order = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);

    return _mm256_shuffle_epi8(_mm256_packus_epi16(first, last),
                               _mm256_broadcastsi128_si256(order));
}
#endif

/* The first and the second signed byte of each 16 bits, times 256. */
static inline raot_dots raot_dots_even_by_256(raot_dots bytes)
{
    return _mm256_slli_epi16(bytes, 8);
}

static inline raot_dots raot_dots_odd_by_256(raot_dots bytes)
{
    return _mm256_andnot_si256(_mm256_set1_epi16(0xFF), bytes);
}

static inline raot_dots raot_dots_by_256(raot_dots sums)
{
    return _mm256_srai_epi32(sums, 8);
}

#elif defined(__SSE2__)
#define RAOT_DOTS_LANES 4
#define RAOT_DOTS_WIDE 2
#define RAOT_DOTS_STEP 8
#define RAOT_DOTS_HIGH 6
typedef __m128i raot_dots;

static inline raot_dots raot_dots_load(const void *from)
{
    return _mm_loadu_si128((const __m128i *)from);
}

static inline void raot_dots_store(void *to, raot_dots value)
{
    _mm_storeu_si128((__m128i *)to, value);
}

static inline raot_dots raot_dots_all(int32_t value)
{
    return _mm_set1_epi32(value);
}

static inline raot_dots raot_dots_plus(raot_dots a, raot_dots b)
{
    return _mm_add_epi32(a, b);
}

static inline raot_dots raot_dots_add(raot_dots sum, raot_dots a, raot_dots b)
{
    return _mm_add_epi32(sum, _mm_madd_epi16(a, b));
}

/* The first and the second signed byte of each 16 bits, times 256. */
static inline raot_dots raot_dots_even_by_256(raot_dots bytes)
{
    return _mm_slli_epi16(bytes, 8);
}

static inline raot_dots raot_dots_odd_by_256(raot_dots bytes)
{
    return _mm_andnot_si128(_mm_set1_epi16(0xFF), bytes);
}

static inline raot_dots raot_dots_by_256(raot_dots sums)
{
    return _mm_srai_epi32(sums, 8);
}
#endif

#if defined(RAOT_DOTS_LANES)
/* Keeps the sums in registers; compilers spill them otherwise. */
#if !defined(RAOT_ASM_INLINE)
#define RAOT_DOTS_STAYS(sum) (void)(sum)
#elif defined(__AVX512BW__)
#define RAOT_DOTS_STAYS(sum) __asm__("" : "+v"(sum))
#else
#define RAOT_DOTS_STAYS(sum) __asm__("" : "+x"(sum))
#endif
#if defined(__clang__)
#define RAOT_DOTS_UNROLL
#else
#define RAOT_DOTS_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

#endif
