/* SPDX-License-Identifier: Apache-2.0 */
/*
 * depthwise_lanes.h - integer depthwise convolutions for cores with vectors.
 *
 * raot_depthwise_positions: one channel, contiguous positions in a strip (gather.h):
 *
 *     sums[p] = bias[0] + strip[offsets[t] + p] * weights[t]      for p < positions
 *
 * summed over t < taps. `extent` bytes of the strip are readable, and sums are written in blocks
 * of 16; an odd number of taps is padded with a weight of 0.
 *
 * raot_depthwise_channels: one position, contiguous channels:
 *
 *     sums[c] = bias[c] + (image[i * step0 + j * step1 + c] - zero) * weights[tap][c]
 *
 * summed over the taps i, j of a window with count1 columns. Rows first0..last0 and columns
 * first1..last1 are inside the image; `image` is the first of them. Sums wrap.
 */
#ifndef RAOT_DEPTHWISE_LANES_H
#define RAOT_DEPTHWISE_LANES_H

#include <stdint.h>

#include "copy.h"
#include "gather.h"

#if defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#define RAOT_DEPTHWISE_WORDS
/* 32 bytes of a tap, as far as they are in the strip, widened. */
__attribute__((always_inline)) static inline __m512i
raot_depthwise_words(const uint8_t *from, int32_t readable, const int whole, const int32_t sign)
{
    __m256i bytes;

    if (whole != 0) {
        bytes = _mm256_loadu_si256((const __m256i *)(const void *)from);
    } else {
        const int32_t none = 32 - (readable < 0 ? 0 : readable > 32 ? 32 : readable);
        const __mmask32 there = (__mmask32)(UINT64_C(0xffffffff) >> none);

        bytes = _mm256_maskz_loadu_epi8(there, from);
    }
    return sign != 0 ? _mm512_cvtepi8_epi16(bytes) : _mm512_cvtepu8_epi16(bytes);
}

/* Sums of 32 positions from `p` on. */
__attribute__((always_inline)) static inline void
raot_depthwise_32(int32_t *sums, const uint8_t *strip, const int32_t *offsets,
                  const int16_t *weights, __m512i start, int32_t taps, int32_t p, int32_t positions,
                  int32_t extent, const int whole, const int32_t sign)
{
    /* In each quarter of 128 bits: positions 0..3 of eight, and 4..7. */
    __m512i low = start, high = start;

    for (int32_t t = 0; t < taps; t += 2) {
        const int32_t here = offsets[t] + p;
        const int32_t after = offsets[t + 1 < taps ? t + 1 : t] + p;
        const __m512i x = raot_depthwise_words(strip + here, extent - here, whole, sign);
        const __m512i y = raot_depthwise_words(strip + after, extent - after, whole, sign);
        int32_t pair;
        RAOT_COPY(&pair, weights + t, sizeof pair);
        const __m512i by = _mm512_set1_epi32(pair);
        low = _mm512_dpwssd_epi32(low, _mm512_unpacklo_epi16(x, y), by);
        high = _mm512_dpwssd_epi32(high, _mm512_unpackhi_epi16(x, y), by);
    }
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    _mm512_storeu_si512(sums + p, _mm512_permutex2var_epi64(low, first, high));
    if (p + 16 < positions) {
        const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
        _mm512_storeu_si512(sums + p + 16, _mm512_permutex2var_epi64(low, second, high));
    }
}
#endif

__attribute__((always_inline)) static inline void
raot_depthwise_positions(int32_t *sums, const uint8_t *strip, const int32_t *offsets,
                         const int16_t *weights, const int32_t *bias, int32_t taps,
                         int32_t positions, int32_t extent, const int32_t sign)
{
#if defined(__AVX2__)
    int32_t farthest = 0;

    for (int32_t t = 0; t < taps; t++) {
        farthest = offsets[t] > farthest ? offsets[t] : farthest;
    }
#endif
#if defined(RAOT_DEPTHWISE_WORDS)
    const __m512i start = _mm512_set1_epi32(bias[0]);
    int32_t p = 0;

    for (; p < positions && farthest + p + 32 <= extent; p += 32) {
        raot_depthwise_32(sums, strip, offsets, weights, start, taps, p, positions, extent, 1,
                          sign);
    }
    for (; p < positions; p += 32) {
        raot_depthwise_32(sums, strip, offsets, weights, start, taps, p, positions, extent, 0,
                          sign);
    }
#elif defined(__AVX2__)
    for (int32_t p = 0; p < positions; p += 16) {
        const int whole = farthest + p + 16 <= extent;
        __m256i low = _mm256_set1_epi32(bias[0]);
        __m256i high = low;
        for (int32_t t = 0; t < taps; t += 2) {
            const int32_t here = offsets[t] + p;
            const int32_t next_offset = offsets[t + 1 < taps ? t + 1 : t] + p;
            const __m128i a = raot_bytes(strip + here, whole ? 16 : extent - here);
            const __m128i b = raot_bytes(strip + next_offset, whole ? 16 : extent - next_offset);
            const __m256i x = raot_i16_values(_mm_unpacklo_epi8(a, b), sign);
            const __m256i y = raot_i16_values(_mm_unpackhi_epi8(a, b), sign);
            int32_t pair;
            RAOT_COPY(&pair, weights + t, sizeof pair);
            const __m256i by = _mm256_set1_epi32(pair);
            low = _mm256_add_epi32(low, _mm256_madd_epi16(x, by));
            high = _mm256_add_epi32(high, _mm256_madd_epi16(y, by));
        }
        _mm256_storeu_si256((__m256i *)(void *)(sums + p), low);
        _mm256_storeu_si256((__m256i *)(void *)(sums + p + 8), high);
    }
#else
    (void)extent;
    for (int32_t p = 0; p < positions; p++) {
        sums[p] = bias[0];
    }
    for (int32_t t = 0; t < taps; t++) {
        const uint8_t *const from = strip + offsets[t];
        const int32_t by = weights[t];
        for (int32_t p = 0; p < positions; p++) {
            const uint32_t product = (uint32_t)(raot_i16_value(from[p], sign) * by);
            sums[p] = (int32_t)((uint32_t)sums[p] + product);
        }
    }
#endif
}

__attribute__((noinline, unused)) static void
raot_depthwise_positions_s8(int32_t *sums, const int8_t *strip, const int32_t *offsets,
                            const int16_t *weights, const int32_t *bias, int32_t taps,
                            int32_t positions, int32_t extent)
{
    raot_depthwise_positions(sums, (const uint8_t *)strip, offsets, weights, bias, taps, positions,
                             extent, 128);
}

__attribute__((noinline, unused)) static void
raot_depthwise_positions_u8(int32_t *sums, const uint8_t *strip, const int32_t *offsets,
                            const int16_t *weights, const int32_t *bias, int32_t taps,
                            int32_t positions, int32_t extent)
{
    raot_depthwise_positions(sums, strip, offsets, weights, bias, taps, positions, extent, 0);
}

#if defined(__AVX2__)
/* Sixteen channels of a tap, widened, minus `less`. */
__attribute__((always_inline)) static inline __m256i
raot_sixteen_values(const uint8_t *from, __m256i less, const int32_t sign)
{
    return _mm256_sub_epi16(raot_i16_values(raot_bytes(from, 16), sign), less);
}
#endif

__attribute__((always_inline)) static inline void
raot_depthwise_channels(int32_t *sums, const uint8_t *image, const int16_t *weights,
                        const int32_t *bias, int32_t channels, int32_t zero, int32_t first0,
                        int32_t last0, int32_t step0, int32_t count1, int32_t first1, int32_t last1,
                        int32_t step1, const int32_t sign)
{
    int32_t c = 0;

#if defined(__AVX2__)
    const __m256i less = _mm256_set1_epi16((int16_t)zero);
    for (; c + 16 <= channels; c += 16) {
        /* Sums of channels 0..3 and 8..11, and of the others: the order of the unpack
         * instructions. */
        const __m256i start = _mm256_loadu_si256((const __m256i *)(const void *)(bias + c));
        const __m256i rest = _mm256_loadu_si256((const __m256i *)(const void *)(bias + c + 8));
        __m256i low = _mm256_permute2x128_si256(start, rest, 0x20);
        __m256i high = _mm256_permute2x128_si256(start, rest, 0x31);
        for (int32_t i = first0; i < last0; i++) {
            const uint8_t *from = image + (i - first0) * step0 + c;
            const int16_t *by = weights + (i * count1 + first1) * channels + c;
            int32_t j = first1;
            for (; j + 2 <= last1; j += 2) {
                const __m256i x = raot_sixteen_values(from, less, sign);
                const __m256i y = raot_sixteen_values(from + step1, less, sign);
                const __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)by);
                const __m256i v =
                    _mm256_loadu_si256((const __m256i *)(const void *)(by + channels));
                low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(x, y),
                                                              _mm256_unpacklo_epi16(u, v)));
                high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(x, y),
                                                                _mm256_unpackhi_epi16(u, v)));
                from += 2 * step1;
                by += 2 * channels;
            }
            if (j < last1) {
                const __m256i none = _mm256_setzero_si256();
                const __m256i x = raot_sixteen_values(from, less, sign);
                const __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)by);
                low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(x, none),
                                                              _mm256_unpacklo_epi16(u, none)));
                high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(x, none),
                                                                _mm256_unpackhi_epi16(u, none)));
            }
        }
        _mm256_storeu_si256((__m256i *)(void *)(sums + c),
                            _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(void *)(sums + c + 8),
                            _mm256_permute2x128_si256(low, high, 0x31));
    }
#endif
    for (int32_t rest = c; rest < channels; rest++) {
        sums[rest] = bias[rest];
    }
    for (int32_t i = first0; i < last0; i++) {
        for (int32_t j = first1; j < last1; j++) {
            const uint8_t *const from = image + (i - first0) * step0 + (j - first1) * step1;
            const int16_t *const by = weights + (i * count1 + j) * channels;
            for (int32_t rest = c; rest < channels; rest++) {
                const uint32_t product =
                    (uint32_t)((raot_i16_value(from[rest], sign) - zero) * by[rest]);
                sums[rest] = (int32_t)((uint32_t)sums[rest] + product);
            }
        }
    }
}

__attribute__((noinline, unused)) static void
raot_depthwise_channels_s8_unpacked(int32_t *sums, const int8_t *image, const int16_t *weights,
                                    const int32_t *bias, int32_t channels, int32_t zero,
                                    int32_t first0, int32_t last0, int32_t step0, int32_t count1,
                                    int32_t first1, int32_t last1, int32_t step1)
{
    raot_depthwise_channels(sums, (const uint8_t *)image, weights, bias, channels, zero, first0,
                            last0, step0, count1, first1, last1, step1, 128);
}

__attribute__((noinline, unused)) static void
raot_depthwise_channels_u8_unpacked(int32_t *sums, const uint8_t *image, const int16_t *weights,
                                    const int32_t *bias, int32_t channels, int32_t zero,
                                    int32_t first0, int32_t last0, int32_t step0, int32_t count1,
                                    int32_t first1, int32_t last1, int32_t step1)
{
    raot_depthwise_channels(sums, image, weights, bias, channels, zero, first0, last0, step0,
                            count1, first1, last1, step1, 0);
}

/* Sizes of the functions below, by name. */
struct raot_depthwise_channels {
    int32_t channels;
    int32_t zero;
    int32_t first0;
    int32_t last0;
    int32_t step0;
    int32_t count1;
    int32_t first1;
    int32_t last1;
    int32_t step1;
};

#define raot_depthwise_channels_s8(sums, image, weights, bias, sizes)                     \
    raot_depthwise_channels_s8_unpacked(sums, image, weights, bias, (sizes)->channels,    \
                                        (sizes)->zero, (sizes)->first0, (sizes)->last0,   \
                                        (sizes)->step0, (sizes)->count1, (sizes)->first1, \
                                        (sizes)->last1, (sizes)->step1)

#define raot_depthwise_channels_u8(sums, image, weights, bias, sizes)                     \
    raot_depthwise_channels_u8_unpacked(sums, image, weights, bias, (sizes)->channels,    \
                                        (sizes)->zero, (sizes)->first0, (sizes)->last0,   \
                                        (sizes)->step0, (sizes)->count1, (sizes)->first1, \
                                        (sizes)->last1, (sizes)->step1)

#endif
