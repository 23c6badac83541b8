/* SPDX-License-Identifier: Apache-2.0 */
/*
 * state_rows.h - rows of states of recurrent layers, whose functions are those of gates.h.
 *
 *     raot_mix_states_f32        state = update * state + (1 - update) * tanh(candidate)
 *     raot_mix_reset_states_f32  the same with x + reset * candidate in place of the candidate
 *     raot_cell_states_f32       cell = sigmoid(forget) * cell + sigmoid(enter) * tanh(candidate),
 *                                state = sigmoid(leave) * tanh(cell)
 *
 * New states are stored twice, in `states` and in `y`. `gates` are rows that are `apart` floats
 * apart, in this order: update, reset and candidate; or enter, leave, forget and candidate.
 * Products of an update and a state are added by raot_fmaf, those of cells are rounded before.
 */
#ifndef RAOT_STATE_ROWS_H
#define RAOT_STATE_ROWS_H

#include <stdint.h>

#include "assembly.h"
#include "gates.h"
#include "ieee.h"

#if defined(RAOT_GATES_VFP) && defined(__ARM_FEATURE_FMA)
#define RAOT_STATE_ROWS_VFP 1
/* clang-format off */
/* An operation on four floats. */
#define RAOT_STATE_LANES(OP, D0, D1, D2, D3, A0, A1, A2, A3, B0, B1, B2, B3) \
    OP D0 ", " A0 ", " B0 "\n" OP D1 ", " A1 ", " B1 "\n" \
    OP D2 ", " A2 ", " B2 "\n" OP D3 ", " A3 ", " B3 "\n"
#define RAOT_STATE_DO(OP, ...) RAOT_STATE_LANES(OP ".f32 ", __VA_ARGS__)
#define RAOT_STATE_A "s0", "s1", "s2", "s3"
#define RAOT_STATE_B "s4", "s5", "s6", "s7"
#define RAOT_STATE_C "s8", "s9", "s10", "s11"
#define RAOT_STATE_D "s12", "s13", "s14", "s15"
#define RAOT_STATE_ONE "s16", "s16", "s16", "s16"
/*
 *     r0, r1, r11   y and states, end of the states
 *     r2            inputs, or cells
 *     r10, lr       gates, bytes from row to row
 *     r4            a row of gates; r3 to r8, r12 are those of RAOT_GATE_FOUR
 *     s16           1
 *
 *     [sp]          saved registers
 *     [sp, #40]     arguments: count, apart, table
 */
#define RAOT_STATE_BEGIN \
    "push {r4-r8, r10, r11, lr}\n vpush {s16-s17}\n mov r10, r3\n" \
    "ldrd r11, lr, [sp, #40]\n ldr r3, [sp, #48]\n" \
    "add r11, r1, r11, lsl #2\n lsl lr, lr, #2\n ldr r12, [r3]\n vmov.f32 s16, #1.0\n"
#define RAOT_STATE_END(STATES) \
    "vstmia r1!, {" STATES "}\n vstmia r0!, {" STATES "}\n cmp r1, r11\n bne.w 1b\n" \
    "vpop {s16-s17}\n pop {r4-r8, r10, r11, pc}\n"
/* Those at r10 are updates, which r10 has passed. */
#define RAOT_STATE_MIX(NAME, CANDIDATE) \
    RAOT_NAKED static void raot_mix_##NAME##_blocks( \
        RAOT_ARGUMENT float *y, RAOT_ARGUMENT float *states, RAOT_ARGUMENT const float *x, \
        RAOT_ARGUMENT const float *gates, RAOT_ARGUMENT int32_t count, \
        RAOT_ARGUMENT int32_t apart, RAOT_ARGUMENT const uint32_t *words) \
    { \
        __asm volatile( \
            RAOT_STATE_BEGIN \
            "1: vldmia r10!, {s0-s3}\n add r4, r10, lr, lsl #1\n vldmdb r4!, {s4-s7}\n" \
            CANDIDATE RAOT_GATE_TANH_FOUR(RAOT_STATE_B) \
            RAOT_STATE_DO("vsub", RAOT_STATE_C, RAOT_STATE_ONE, RAOT_STATE_A) \
            RAOT_STATE_DO("vmul", RAOT_STATE_B, RAOT_STATE_C, RAOT_STATE_B) \
            "vldmia r1, {s12-s15}\n" \
            RAOT_STATE_DO("vfma", RAOT_STATE_B, RAOT_STATE_A, RAOT_STATE_D) \
            RAOT_STATE_END("s4-s7")); \
    }
RAOT_STATE_MIX(states, "")
RAOT_STATE_MIX(reset_states,
    "sub r4, r4, lr\n vldmia r4, {s8-s11}\n vldmia r2!, {s12-s15}\n"
    RAOT_STATE_DO("vmul", RAOT_STATE_B, RAOT_STATE_C, RAOT_STATE_B)
    RAOT_STATE_DO("vadd", RAOT_STATE_B, RAOT_STATE_D, RAOT_STATE_B))
RAOT_NAKED static void raot_cell_states_blocks(
    RAOT_ARGUMENT float *y, RAOT_ARGUMENT float *states, RAOT_ARGUMENT float *cells,
    RAOT_ARGUMENT const float *gates, RAOT_ARGUMENT int32_t count, RAOT_ARGUMENT int32_t apart,
    RAOT_ARGUMENT const uint32_t *words)
{
    __asm volatile(
        RAOT_STATE_BEGIN
        "1: vldmia r10!, {s0-s3}\n" RAOT_GATE_SIGMOID_FOUR(RAOT_STATE_A)
        "add r4, r10, lr, lsl #1\n vldmdb r4!, {s4-s7}\n" RAOT_GATE_SIGMOID_FOUR(RAOT_STATE_B)
        "add r4, r10, lr, lsl #1\n add r4, lr\n vldmdb r4!, {s8-s11}\n"
        RAOT_GATE_TANH_FOUR(RAOT_STATE_C) "vldmia r2, {s12-s15}\n"
        RAOT_STATE_DO("vmul", RAOT_STATE_B, RAOT_STATE_B, RAOT_STATE_D)
        RAOT_STATE_DO("vmul", RAOT_STATE_A, RAOT_STATE_A, RAOT_STATE_C)
        RAOT_STATE_DO("vadd", RAOT_STATE_A, RAOT_STATE_A, RAOT_STATE_B) "vstmia r2!, {s0-s3}\n");
    /* C compilers need not take longer texts than 4095 characters. */
    __asm volatile(
        RAOT_GATE_TANH_FOUR(RAOT_STATE_A)
        "add r4, r10, lr\n vldmdb r4!, {s4-s7}\n" RAOT_GATE_SIGMOID_FOUR(RAOT_STATE_B)
        RAOT_STATE_DO("vmul", RAOT_STATE_A, RAOT_STATE_A, RAOT_STATE_B)
        RAOT_STATE_END("s0-s3"));
}
#undef RAOT_STATE_MIX
#undef RAOT_STATE_END
#undef RAOT_STATE_BEGIN
#undef RAOT_STATE_DO
/* clang-format on */
#endif

__attribute__((noinline, unused)) static void
raot_mix_states_f32(float *states, float *y, const float *gates, int32_t count, int32_t apart)
{
    int32_t i = 0;

#if defined(RAOT_STATE_ROWS_VFP)
    if (count >= 4) {
        i = count / 4 * 4;
        raot_mix_states_blocks(y, states, states, gates, i, apart, raot_gate_words());
    }
#endif
    /*@ loop unroll 4096; */
    for (; i < count; i++) {
        const float fresh = raot_gate_tanhf(gates[2 * apart + i]);

        states[i] = raot_fmaf(gates[i], states[i], (1.0f - gates[i]) * fresh);
        y[i] = states[i];
    }
}

__attribute__((noinline, unused)) static void
raot_mix_reset_states_f32(float *states, float *y, const float *gates, const float *x,
                          int32_t count, int32_t apart)
{
    int32_t i = 0;

#if defined(RAOT_STATE_ROWS_VFP)
    if (count >= 4) {
        i = count / 4 * 4;
        raot_mix_reset_states_blocks(y, states, x, gates, i, apart, raot_gate_words());
    }
#endif
    /*@ loop unroll 4096; */
    for (; i < count; i++) {
        const float fresh = raot_gate_tanhf(x[i] + gates[apart + i] * gates[2 * apart + i]);

        states[i] = raot_fmaf(gates[i], states[i], (1.0f - gates[i]) * fresh);
        y[i] = states[i];
    }
}

__attribute__((noinline, unused)) static void raot_cell_states_f32(float *states, float *y,
                                                                   float *cells, const float *gates,
                                                                   int32_t count, int32_t apart)
{
    int32_t i = 0;

#if defined(RAOT_STATE_ROWS_VFP)
    if (count >= 4) {
        i = count / 4 * 4;
        raot_cell_states_blocks(y, states, cells, gates, i, apart, raot_gate_words());
    }
#endif
    /*@ loop unroll 4096; */
    for (; i < count; i++) {
        const float kept = raot_gate_sigmoidf(gates[2 * apart + i]) * cells[i];
        const float fresh = raot_gate_tanhf(gates[3 * apart + i]);

        cells[i] = kept + raot_gate_sigmoidf(gates[i]) * fresh;
        states[i] = raot_gate_sigmoidf(gates[apart + i]) * raot_gate_tanhf(cells[i]);
        y[i] = states[i];
    }
}

#endif
