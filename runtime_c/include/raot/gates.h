/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gates.h - sigmoid and tanh by a table, for the gates of quantized recurrent layers.
 *
 *     raot_gate_sigmoidf, raot_gate_tanhf         of one float
 *     raot_gate_sigmoid_f32, raot_gate_tanh_f32   of contiguous floats; what is written may be what
 *                                                 is read
 *
 * The sigmoid is linear between multiples of 1/8, from -16 to 16. Values there are less by h^2 / 16
 * times the second derivative, with h = 1/8, which halves the greatest error. Arguments are cut off
 * after 18 bits of fraction (tanh: 19), and NaN counts as 0. The error of the sigmoid is below
 * 1.3e-4, that of tanh below 2.5e-4; tanh is 0 at 0. The bits are the same on every target.
 *
 * Steps of an argument are numbered from -32768 to 32767 in every two intervals, so a word of the
 * table is for the upper end of the first one, or for the lower end of the second one: in its upper
 * half the sigmoid in 15 bits of fraction, in the lower one the slope, in 31 bits of fraction for a
 * step. The word plus the product of slope and step has 31 bits of fraction. Words of arguments
 * below 0 are the second half of the table.
 */
#ifndef RAOT_GATES_H
#define RAOT_GATES_H

#include <stdint.h>

#include "assembly.h"
#include "convert.h"
#include "ieee.h"
#include "mve.h"

#if defined(RAOT_ASM_THUMB) && defined(RAOT_DSP) && defined(__ARM_FP) && !defined(RAOT_MVE_F32)
#if (__ARM_FP & 4) != 0
#define RAOT_GATES_VFP 1
#endif
#endif
#if defined(__ARM_NEON) && defined(__aarch64__) && !defined(RAOT_DEVICE) && \
    !defined(RAOT_NO_INTRINSICS)
#define RAOT_GATES_NEON 1
#include <arm_neon.h>
#endif
#if defined(__AVX2__) && !defined(RAOT_DEVICE) && !defined(RAOT_NO_INTRINSICS)
#define RAOT_GATES_AVX2 1
#include <immintrin.h>
#endif

/* The sigmoid of 0, as the table gives it. */
#define RAOT_GATE_MIDDLE 0x400007fe

/* clang-format off */
static inline const uint32_t *raot_gate_words(void)
{
    static const uint32_t words[256] = {
        0x400007feu, 0x47f607eeu, 0x47f607cfu, 0x4faf07a1u, 0x4faf0766u, 0x56f20720u, 0x56f206d0u,
        0x5d960679u, 0x5d96061cu, 0x638205bbu, 0x63820559u, 0x68a904f7u, 0x68a90496u, 0x6d100437u,
        0x6d1003dcu, 0x70c10386u, 0x70c10334u, 0x73ce02e7u, 0x73ce029fu, 0x764c025du, 0x764c0220u,
        0x785101e9u, 0x785101b6u, 0x79ef0187u, 0x79ef015eu, 0x7b3a0138u, 0x7b3a0116u, 0x7c4000f7u,
        0x7c4000dcu, 0x7d1000c3u, 0x7d1000adu, 0x7db3009au, 0x7db30088u, 0x7e340079u, 0x7e34006bu,
        0x7e98005fu, 0x7e980054u, 0x7ee7004au, 0x7ee70041u, 0x7f25003au, 0x7f250033u, 0x7f55002du,
        0x7f550028u, 0x7f7b0023u, 0x7f7b001fu, 0x7f98001cu, 0x7f980018u, 0x7faf0015u, 0x7faf0013u,
        0x7fc10011u, 0x7fc1000fu, 0x7fcf000du, 0x7fcf000cu, 0x7fda000au, 0x7fda0009u, 0x7fe20008u,
        0x7fe20007u, 0x7fe90006u, 0x7fe90005u, 0x7fee0005u, 0x7fee0004u, 0x7ff20004u, 0x7ff20003u,
        0x7ff50003u, 0x7ff50003u, 0x7ff70002u, 0x7ff70002u, 0x7ff90002u, 0x7ff90002u, 0x7ffb0001u,
        0x7ffb0001u, 0x7ffc0001u, 0x7ffc0001u, 0x7ffd0001u, 0x7ffd0001u, 0x7ffe0001u, 0x7ffe0001u,
        0x7ffe0001u, 0x7ffe0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
        0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
        0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
        0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
        0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
        0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
        0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u, 0x7fff0000u,
        0x7fff0000u, 0x7fff0000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u,
        0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u,
        0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u,
        0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u,
        0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u,
        0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u,
        0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u, 0x00010000u,
        0x00020000u, 0x00020000u, 0x00020000u, 0x00020001u, 0x00020001u, 0x00020001u, 0x00030001u,
        0x00030001u, 0x00040001u, 0x00040001u, 0x00050001u, 0x00050001u, 0x00070002u, 0x00070002u,
        0x00090002u, 0x00090002u, 0x000b0003u, 0x000b0003u, 0x000e0003u, 0x000e0004u, 0x00120004u,
        0x00120005u, 0x00170005u, 0x00170006u, 0x001e0007u, 0x001e0008u, 0x00260009u, 0x0026000au,
        0x0031000cu, 0x0031000du, 0x003f000fu, 0x003f0011u, 0x00510013u, 0x00510015u, 0x00680018u,
        0x0068001cu, 0x0085001fu, 0x00850023u, 0x00ab0028u, 0x00ab002du, 0x00db0033u, 0x00db003au,
        0x01190041u, 0x0119004au, 0x01680054u, 0x0168005fu, 0x01cc006bu, 0x01cc0079u, 0x024d0088u,
        0x024d009au, 0x02f000adu, 0x02f000c3u, 0x03c000dcu, 0x03c000f7u, 0x04c60116u, 0x04c60138u,
        0x0611015eu, 0x06110187u, 0x07af01b6u, 0x07af01e9u, 0x09b40220u, 0x09b4025du, 0x0c32029fu,
        0x0c3202e7u, 0x0f400334u, 0x0f400386u, 0x12f003dcu, 0x12f00437u, 0x17570496u, 0x175704f7u,
        0x1c7e0559u, 0x1c7e05bbu, 0x226a061cu, 0x226a0679u, 0x290e06d0u, 0x290e0720u, 0x30510766u,
        0x305107a1u, 0x380a07cfu, 0x380a07eeu, 0x400007feu,
    };

    return words;
}
/* clang-format on */

/* The sigmoid of `steps` times 2^-18. */
static inline int32_t raot_gate_fixed(int32_t steps)
{
#if defined(RAOT_GATES_VFP)
    const int32_t inside = RAOT_SSAT(steps, 23);
    int32_t word;

    /* Compilers add the address of the table in an instruction of its own. */
    __asm("ubfx %0, %1, #15, #8\n ldr %0, [%2, %0, lsl #2]"
          : "=&r"(word)
          : "r"(inside), "r"(raot_gate_words()));
    return __smlabb(word, inside, word);
#else
    const int32_t inside = raot_clamp_i32(steps, -0x400000, 0x3fffff);
    const uint32_t word = raot_gate_words()[(uint32_t)inside >> 15 & 255u];
    const int32_t change = (int32_t)(int16_t)word * (int16_t)inside;

    /* No sum overflows, but an analysis that joins all words of the table finds that it does. */
    return (int32_t)(word + (uint32_t)change);
#endif
}

/* x * 2^bits, truncated and saturated; the inverse. */
#if defined(RAOT_GATES_VFP)
#define RAOT_GATE_STEPS(NAME, BITS, FRACTION)                    \
    static inline int32_t raot_gate_##NAME##_steps(float x)      \
    {                                                            \
        __asm("vcvt.s32.f32 %0, %0, #" BITS : "+t"(x));          \
        return (int32_t)raot_bitsf(x);                           \
    }                                                            \
    static inline float raot_gate_##NAME##_of(int32_t fixed)     \
    {                                                            \
        float result = raot_of_bitsf((uint32_t)fixed);           \
                                                                 \
        __asm("vcvt.f32.s32 %0, %0, #" FRACTION : "+t"(result)); \
        return result;                                           \
    }
RAOT_GATE_STEPS(sigmoid, "18", "31")
RAOT_GATE_STEPS(tanh, "19", "30")
#elif defined(RAOT_FLOAT_CALLS)
#define RAOT_GATE_STEPS(NAME, BITS, FRACTION)                                        \
    static inline int32_t raot_gate_##NAME##_steps(float x)                          \
    {                                                                                \
        return raot_f32_to_fixed(x, BITS);                                           \
    }                                                                                \
    static inline float raot_gate_##NAME##_of(int32_t fixed)                         \
    {                                                                                \
        const uint32_t bits = raot_bitsf((float)fixed);                              \
        return fixed == 0 ? 0.0f : raot_of_bitsf(bits - ((uint32_t)FRACTION << 23)); \
    }
RAOT_GATE_STEPS(sigmoid, 18, 31)
RAOT_GATE_STEPS(tanh, 19, 30)
#else
#define RAOT_GATE_STEPS(NAME, SCALE, STEP)                   \
    static inline int32_t raot_gate_##NAME##_steps(float x)  \
    {                                                        \
        return raot_f32_to_i32_sat(x * SCALE);               \
    }                                                        \
    static inline float raot_gate_##NAME##_of(int32_t fixed) \
    {                                                        \
        return (float)fixed / STEP;                          \
    }
RAOT_GATE_STEPS(sigmoid, 262144.0f, 2147483648.0f)
RAOT_GATE_STEPS(tanh, 524288.0f, 1073741824.0f)
#endif
#undef RAOT_GATE_STEPS

static inline float raot_gate_sigmoidf(float x)
{
    return raot_gate_sigmoid_of(raot_gate_fixed(raot_gate_sigmoid_steps(x)));
}

static inline float raot_gate_tanhf(float x)
{
    uint32_t middle = RAOT_GATE_MIDDLE;

#if defined(RAOT_GATES_VFP)
    __asm("" : "+r"(middle)); /* which is no immediate operand */
#endif
    return raot_gate_tanh_of(
        (int32_t)((uint32_t)raot_gate_fixed(raot_gate_tanh_steps(x)) - middle));
}

/*
 * Some elements at a time, and how many. `BITS` is 18 and `MIDDLE` is 0 for the sigmoid, 19 and its
 * value at 0 for tanh, whose results have one bit of fraction less.
 */
#if defined(RAOT_MVE_F32)
#define RAOT_GATE_LANES 4
#define RAOT_GATE_BLOCKS(NAME, BITS, FRACTION, MIDDLE)                                            \
    static inline void raot_gate_##NAME##_blocks(float *values, const float *from, int32_t count) \
    {                                                                                             \
        const int32_t *const words = (const int32_t *)raot_gate_words();                          \
        for (; count > 0; count--) {                                                              \
            const int32x4_t high = vqshlq_n_s32(vcvtq_n_s32_f32(vld1q_f32(from), BITS), 9);       \
            const uint32x4_t place = vshrq_n_u32(vreinterpretq_u32_s32(high), 24);                \
            const int32x4_t word = vldrwq_gather_shifted_offset_s32(words, place);                \
            const int32x4_t rise = vmullbq_int_s16(vreinterpretq_s16_s32(word),                   \
                                                   vreinterpretq_s16_s32(vshrq_n_s32(high, 9)));  \
            const int32x4_t sum = vaddq_s32(vsubq_n_s32(word, MIDDLE), rise);                     \
            vst1q_f32(values, vcvtq_n_f32_s32(sum, FRACTION));                                    \
            values += 4;                                                                          \
            from += 4;                                                                            \
        }                                                                                         \
    }
#elif defined(RAOT_GATES_NEON)
#define RAOT_GATE_LANES 4
#define RAOT_GATE_BLOCKS(NAME, BITS, FRACTION, MIDDLE)                                            \
    static inline void raot_gate_##NAME##_blocks(float *values, const float *from, int32_t count) \
    {                                                                                             \
        const int32_t *const words = (const int32_t *)raot_gate_words();                          \
        const int32x4_t middle = vdupq_n_s32(MIDDLE);                                             \
        for (; count > 0; count--) {                                                              \
            const int32x4_t high = vqshlq_n_s32(vcvtq_n_s32_f32(vld1q_f32(from), BITS), 9);       \
            const uint32x4_t place = vshrq_n_u32(vreinterpretq_u32_s32(high), 24);                \
            int32x4_t word = vld1q_dup_s32(words + vgetq_lane_u32(place, 0));                     \
            word = vld1q_lane_s32(words + vgetq_lane_u32(place, 1), word, 1);                     \
            word = vld1q_lane_s32(words + vgetq_lane_u32(place, 2), word, 2);                     \
            word = vld1q_lane_s32(words + vgetq_lane_u32(place, 3), word, 3);                     \
            word = vmlal_s16(vsubq_s32(word, middle), vmovn_s32(word), vshrn_n_s32(high, 9));     \
            vst1q_f32(values, vcvtq_n_f32_s32(word, FRACTION));                                   \
            values += 4;                                                                          \
            from += 4;                                                                            \
        }                                                                                         \
    }
#elif defined(RAOT_GATES_VFP)
#define RAOT_GATE_LANES 4
/* clang-format off */
#define RAOT_GATE_ONE(X, MIDDLE) \
    "ssat " X ", #23, " X "\n ubfx r8, " X ", #15, #8\n ldr r8, [r3, r8, lsl #2]\n" \
    "smlabb " X ", r8, " X ", r8\n" MIDDLE(X)
#define RAOT_GATE_AS_IS(X)
#define RAOT_GATE_LESS(X) "subs " X ", " X ", r12\n"
/* Four floats in registers. r3: the table, r12: the value at 0, r4 to r8: steps, sums and a word */
#define RAOT_GATE_FOUR(BITS, FRACTION, MIDDLE, A, B, C, D) \
    "vcvt.s32.f32 " A ", " A ", #" BITS "\n vcvt.s32.f32 " B ", " B ", #" BITS "\n" \
    "vcvt.s32.f32 " C ", " C ", #" BITS "\n vcvt.s32.f32 " D ", " D ", #" BITS "\n" \
    "vmov r4, r5, " A ", " B "\n vmov r6, r7, " C ", " D "\n" \
    RAOT_GATE_ONE("r4", MIDDLE) RAOT_GATE_ONE("r5", MIDDLE) \
    RAOT_GATE_ONE("r6", MIDDLE) RAOT_GATE_ONE("r7", MIDDLE) \
    "vmov " A ", " B ", r4, r5\n vmov " C ", " D ", r6, r7\n" \
    "vcvt.f32.s32 " A ", " A ", #" FRACTION "\n vcvt.f32.s32 " B ", " B ", #" FRACTION "\n" \
    "vcvt.f32.s32 " C ", " C ", #" FRACTION "\n vcvt.f32.s32 " D ", " D ", #" FRACTION "\n"
#define RAOT_GATE_SIGMOID_FOUR(...) RAOT_GATE_FOUR("18", "31", RAOT_GATE_AS_IS, __VA_ARGS__)
#define RAOT_GATE_TANH_FOUR(...) RAOT_GATE_FOUR("19", "30", RAOT_GATE_LESS, __VA_ARGS__)
/* r0, r1, r2: results, arguments, blocks */
#define RAOT_GATE_VFP(NAME, FOUR) \
    RAOT_NAKED static void raot_gate_##NAME##_vfp( \
        RAOT_ARGUMENT float *values, RAOT_ARGUMENT const float *from, \
        RAOT_ARGUMENT int32_t blocks, RAOT_ARGUMENT const uint32_t *words) \
    { \
        __asm volatile( \
            "push {r4-r8, lr}\n ldr r12, [r3]\n" \
            "1: vldmia r1!, {s0-s3}\n" FOUR("s0", "s1", "s2", "s3") \
            "vstmia r0!, {s0-s3}\n subs r2, #1\n bgt 1b\n" \
            "pop {r4-r8, pc}\n"); \
    }
RAOT_GATE_VFP(sigmoid, RAOT_GATE_SIGMOID_FOUR)
RAOT_GATE_VFP(tanh, RAOT_GATE_TANH_FOUR)
#undef RAOT_GATE_VFP
/* clang-format on */
#define RAOT_GATE_BLOCKS(NAME, BITS, FRACTION, MIDDLE)                                            \
    static inline void raot_gate_##NAME##_blocks(float *values, const float *from, int32_t count) \
    {                                                                                             \
        if (count > 0) {                                                                          \
            raot_gate_##NAME##_vfp(values, from, count, raot_gate_words());                       \
        }                                                                                         \
    }
#elif defined(RAOT_GATES_AVX2)
#define RAOT_GATE_LANES 8
#define RAOT_GATE_BLOCKS(NAME, BITS, FRACTION, MIDDLE)                                            \
    static inline void raot_gate_##NAME##_blocks(float *values, const float *from, int32_t count) \
    {                                                                                             \
        const int *const words = (const int *)raot_gate_words();                                  \
        const __m256 scale = _mm256_set1_ps(1.0f / (float)(1ull << (FRACTION)));                  \
        const __m256i halves = _mm256_set1_epi32(0xffff);                                         \
        for (; count > 0; count--) {                                                              \
            const __m256 x = _mm256_loadu_ps(from);                                               \
            const __m256 known = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));               \
            const __m256 steps =                                                                  \
                _mm256_mul_ps(known, _mm256_set1_ps((float)((int32_t)1 << (BITS))));              \
            const __m256 above = _mm256_max_ps(steps, _mm256_set1_ps(-4194304.0f));               \
            const __m256 both = _mm256_min_ps(above, _mm256_set1_ps(4194303.0f));                 \
            const __m256i inside = _mm256_cvttps_epi32(both);                                     \
            const __m256i place =                                                                 \
                _mm256_and_si256(_mm256_srai_epi32(inside, 15), _mm256_set1_epi32(255));          \
            const __m256i word = _mm256_i32gather_epi32(words, place, 4);                         \
            const __m256i rise = _mm256_madd_epi16(word, _mm256_and_si256(inside, halves));       \
            const __m256i sum =                                                                   \
                _mm256_add_epi32(_mm256_sub_epi32(word, _mm256_set1_epi32(MIDDLE)), rise);        \
            _mm256_storeu_ps(values, _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scale));              \
            values += 8;                                                                          \
            from += 8;                                                                            \
        }                                                                                         \
    }
#else
#define RAOT_GATE_LANES 1
#define RAOT_GATE_BLOCKS(NAME, BITS, FRACTION, MIDDLE)                                            \
    static inline void raot_gate_##NAME##_blocks(float *values, const float *from, int32_t count) \
    {                                                                                             \
        /*@ loop unroll 4096; */                                                                  \
        for (int32_t i = 0; i < count; i++) {                                                     \
            values[i] = raot_gate_##NAME##f(from[i]);                                             \
        }                                                                                         \
    }
#endif

#define RAOT_GATE_ROW(NAME, BITS, FRACTION, MIDDLE)                       \
    RAOT_GATE_BLOCKS(NAME, BITS, FRACTION, MIDDLE)                        \
    __attribute__((noinline, unused)) static void raot_gate_##NAME##_f32( \
        float *values, const float *from, int32_t count)                  \
    {                                                                     \
        const int32_t whole = count / RAOT_GATE_LANES * RAOT_GATE_LANES;  \
                                                                          \
        raot_gate_##NAME##_blocks(values, from, whole / RAOT_GATE_LANES); \
        /*@ loop unroll 4096; */                                          \
        for (int32_t i = whole; i < count; i++) {                         \
            values[i] = raot_gate_##NAME##f(from[i]);                     \
        }                                                                 \
    }
RAOT_GATE_ROW(sigmoid, 18, 31, 0)
RAOT_GATE_ROW(tanh, 19, 30, RAOT_GATE_MIDDLE)
#undef RAOT_GATE_ROW
#undef RAOT_GATE_BLOCKS

#endif
