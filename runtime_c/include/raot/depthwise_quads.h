/*
 * depthwise_quads.h - convolutions of one channel for cores with vectors of bytes.
 *
 * An image is laid out as blocks of four lines, byte by byte in turn: quads[(b * length + c) * 4 +
 * j] is column c of line 2 * b + j, with a frame around the image. What a window of at most four
 * columns covers then lies in 16 bytes, and serves two lines of the output, whose weights differ by
 * place.
 */
#ifndef RAOT_DEPTHWISE_QUADS_H
#define RAOT_DEPTHWISE_QUADS_H

#include <stdint.h>
#include <string.h>

#include "convert.h"

#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#endif

#if defined(__ARM_FEATURE_MVE) && defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#define RAOT_QUADS_MVE 1
#endif

/* All bytes of the blocks, so that a frame is there. */
__attribute__((noinline, unused)) static void raot_frame_quads(int8_t *quads, int32_t zero,
                                                               int32_t count)
{
    (void)memset(quads, zero, (size_t)count);
}

/*
 * What of an image lies in blocks whose first line is `top` and whose first column is `left`; the
 * frame stays. `image` is line 0 and column 0. `flip` is 0, or 128 where the image has unsigned
 * bytes: they become signed. Seven columns are at most 65535 bytes apart.
 */
__attribute__((noinline, unused)) static void
raot_quads_u8(int8_t *quads, const uint8_t *image, int32_t flip, int32_t blocks, int32_t length,
              int32_t top, int32_t left, int32_t lines, int32_t columns, int32_t line_step,
              int32_t step)
{
    const int32_t first = left > 0 ? left : 0;
    const int32_t last = columns < left + length ? columns : left + length;
    const int32_t end = lines < top + 2 * blocks + 2 ? lines : top + 2 * blocks + 2;
    const int32_t count = last - first;

    if (count <= 0) {
        return;
    }
#if defined(RAOT_QUADS_MVE)
    const int narrow = step * 15 <= UINT8_MAX;
    const uint8x16_t apart8 = vmulq_n_u8(vidupq_n_u8(0, 1), (uint8_t)step);
    const uint8x16_t at8 = vidupq_n_u8(0, 4);
    const uint8x16_t other8 = vdupq_n_u8((uint8_t)flip);
    const uint16x8_t apart16 = vmulq_n_u16(vidupq_n_u16(0, 1), (uint16_t)step);
    const uint16x8_t at16 = vidupq_n_u16(0, 4);
#endif
    for (int32_t y = top > 0 ? top : 0; y < end; y++) {
        const uint8_t *from = image + y * line_step + first * step;
        const int32_t b = (y - top) / 2;
        /* In a block of its own, and as the third or fourth line of the one before. */
        int8_t *to = quads + (b * length + first - left) * 4 + (y - top) % 2;
        int8_t *before = to - length * 4 + 2;

        if (b == blocks) {
            to = before;
        }
        if (b == 0) {
            before = to;
        }
#if defined(RAOT_QUADS_MVE)
        if (narrow) {
            __asm volatile("dlstp.8 lr, %[count]\n"
                           "1:\n vldrb.u8 q0, [%[from], %q[apart]]\n veor q0, q0, %q[other]\n"
                           "vstrb.8 q0, [%[to], %q[at]]\n vstrb.8 q0, [%[before], %q[at]]\n"
                           "add %[from], %[step]\n adds %[to], #64\n adds %[before], #64\n"
                           "letp lr, 1b\n"
                           : [to] "+l"(to), [before] "+l"(before), [from] "+r"(from)
                           : [count] "r"(count), [step] "r"(16 * step), [apart] "w"(apart8),
                             [at] "w"(at8), [other] "w"(other8)
                           : "lr", "s0", "s1", "s2", "s3", "cc", "memory");
        } else {
            __asm volatile("dlstp.16 lr, %[count]\n"
                           "1:\n vldrb.u16 q0, [%[from], %q[apart]]\n veor q0, q0, %q[other]\n"
                           "vstrb.16 q0, [%[to], %q[at]]\n vstrb.16 q0, [%[before], %q[at]]\n"
                           "add %[from], %[step]\n adds %[to], #32\n adds %[before], #32\n"
                           "letp lr, 1b\n"
                           : [to] "+l"(to), [before] "+l"(before), [from] "+r"(from)
                           : [count] "r"(count), [step] "r"(8 * step), [apart] "w"(apart16),
                             [at] "w"(at16), [other] "w"(other8)
                           : "lr", "s0", "s1", "s2", "s3", "cc", "memory");
        }
#else
        for (int32_t c = 0; c < count; c++) {
            to[4 * c] = (int8_t)(from[c * step] ^ flip);
            before[4 * c] = to[4 * c];
        }
#endif
    }
}

#define raot_quads_s8(quads, image, ...) raot_quads_u8(quads, (const uint8_t *)(image), __VA_ARGS__)

/*
 * sums[(b * outs + n) * count + p]: the products of 16 weights, those of n, and the 16 bytes at
 * column p * stride of block b, for `outs` of one or two and a stride of one or two.
 */
#if defined(RAOT_QUADS_MVE)
/* clang-format off */
#define RAOT_QUADS_TWO(STEP) __asm volatile(                                        \
        "wls lr, %[pairs], 2f\n"                                                    \
        "1:\n vldrb.8 q0, [%[x]], #" STEP "\n vldrb.8 q1, [%[x]], #" STEP "\n"      \
        "vmladav.s8 r0, q0, %q[w]\n vmladav.s8 r2, q1, %q[w]\n"                     \
        "vmladav.s8 r4, q0, %q[v]\n vmladav.s8 r6, q1, %q[v]\n"                     \
        "strd r0, r2, [%[a]], #8\n strd r4, r6, [%[b]], #8\n le lr, 1b\n"           \
        "2:\n cbz %[odd], 3f\n vldrb.8 q0, [%[x]]\n"                                \
        "vmladav.s8 r0, q0, %q[w]\n vmladav.s8 r4, q0, %q[v]\n"                     \
        "str r0, [%[a]]\n str r4, [%[b]]\n3:\n"                                     \
        : [x] "+r"(x), [a] "+r"(a), [b] "+r"(b)                                     \
        : [pairs] "r"(count / 2), [odd] "l"(count % 2), [w] "w"(w), [v] "w"(v)      \
        : "lr", "r0", "r2", "r4", "r6", "s0", "s1", "s2", "s3", "s4", "s5", "s6",   \
          "s7", "cc", "memory")

#define RAOT_QUADS_ONE(STEP) __asm volatile(                                        \
        "wls lr, %[pairs], 2f\n"                                                    \
        "1:\n vldrb.8 q0, [%[x]], #" STEP "\n vldrb.8 q1, [%[x]], #" STEP "\n"      \
        "vmladav.s8 r0, q0, %q[w]\n vmladav.s8 r2, q1, %q[w]\n"                     \
        "strd r0, r2, [%[a]], #8\n le lr, 1b\n"                                     \
        "2:\n cbz %[odd], 3f\n vldrb.8 q0, [%[x]]\n"                                \
        "vmladav.s8 r0, q0, %q[w]\n str r0, [%[a]]\n3:\n"                           \
        : [x] "+r"(x), [a] "+r"(a)                                                  \
        : [pairs] "r"(count / 2), [odd] "l"(count % 2), [w] "w"(w)                  \
        : "lr", "r0", "r2", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "cc",   \
          "memory")
/* clang-format on */
#endif

__attribute__((noinline, unused)) static void
raot_multiply_quads_s8(int32_t *sums, const int8_t *quads, const int8_t *weights, int32_t blocks,
                       int32_t outs, int32_t count, int32_t stride, int32_t length)
{
#if defined(RAOT_QUADS_MVE)
    const int8x16_t w = vldrbq_s8(weights);
    const int8x16_t v = vldrbq_s8(outs == 2 ? weights + 16 : weights);

    for (int32_t block = 0; block < blocks; block++) {
        const int8_t *x = quads + block * length * 4;
        int32_t *a = sums + block * outs * count;
        int32_t *b = a + count;

        if (outs == 2 && stride == 1) {
            RAOT_QUADS_TWO("4");
        } else if (outs == 2) {
            RAOT_QUADS_TWO("8");
        } else if (stride == 1) {
            RAOT_QUADS_ONE("4");
        } else {
            RAOT_QUADS_ONE("8");
        }
    }
#else
    for (int32_t block = 0; block < blocks; block++) {
        for (int32_t n = 0; n < outs; n++) {
            for (int32_t p = 0; p < count; p++) {
                const int8_t *const x = quads + (block * length + p * stride) * 4;
                uint32_t sum = 0u;
                for (int32_t k = 0; k < 16; k++) {
                    sum += (uint32_t)(weights[n * 16 + k] * x[k]);
                }
                sums[(block * outs + n) * count + p] = (int32_t)sum;
            }
        }
    }
#endif
}

#if defined(RAOT_QUADS_MVE)
#undef RAOT_QUADS_TWO
#undef RAOT_QUADS_ONE
#endif

#endif
