/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fixed_gates.h - sigmoid and tanh of integers, for the gates of integer LSTMs.
 *
 *     raot_fixed_sigmoid_i32, raot_fixed_tanh_i32   of one number, at most 2^22 from 0
 *     raot_fixed_sigmoid_s16, raot_fixed_tanh_s16   of contiguous numbers with `bits` integer bits,
 *                                                   by which they are shifted; what is written may
 *                                                   be what is read
 *
 * Arguments and results are in steps of 2^-15. The bits are those of gemmlowp's logistic and tanh
 * of 16-bit numbers. exp(-x) is a polynomial for the last quarter of x, times a factor for each bit
 * of the quarters before; 1 / (1 + exp(-x)) takes three steps of Newton's method. Products have 16
 * bits and are rounded to nearest, halves up.
 */
#ifndef RAOT_FIXED_GATES_H
#define RAOT_FIXED_GATES_H

#include <stdint.h>

#include "assembly.h"
#include "mve.h"

/* exp(-1/8), 1/3, and exp(-2^k) for k from -2 on, in steps of 2^-15. */
#define RAOT_FIXED_MIDDLE 28918
#define RAOT_FIXED_THIRD 10923
#define RAOT_FIXED_POWERS(X) X(13, 25520) X(14, 19875) X(15, 12055) X(16, 4435) X(17, 600) X(18, 11)

/* 48/17 and -32/17, where Newton's method begins, in steps of 2^-13. */
#define RAOT_FIXED_START 23130
#define RAOT_FIXED_SLOPE (-15420)

static inline int32_t raot_fixed_times(int32_t x, int32_t y)
{
    return (x * y + 0x4000) >> 15;
}

/* exp(-x) of x > 0. */
static inline int32_t raot_fixed_exp(int32_t x)
{
    const int32_t before = x - 1;
    const int32_t a = 4095 - (before & 8191);
    const int32_t square = raot_fixed_times(a, a);
    const int32_t fourth = (raot_fixed_times(square, square) + 2) >> 2;
    const int32_t third = fourth + raot_fixed_times(square, a);
    const int32_t terms = (raot_fixed_times(third, RAOT_FIXED_THIRD) + square + 1) >> 1;
    int32_t result = RAOT_FIXED_MIDDLE + raot_fixed_times(a + terms, RAOT_FIXED_MIDDLE);

#define RAOT_FIXED_POWER(PLACE, FACTOR) \
    result = (before >> PLACE & 1) != 0 ? raot_fixed_times(result, FACTOR) : result;
    RAOT_FIXED_POWERS(RAOT_FIXED_POWER)
#undef RAOT_FIXED_POWER
    return before < 0x80000 ? result : 0;
}

/* 2 / (1 + e) of 0 <= e < 1, in steps of 2^-13. */
static inline int32_t raot_fixed_quotient(int32_t e)
{
    const int32_t half = (e + 0x8000) >> 1;
    int32_t x = RAOT_FIXED_START + raot_fixed_times(half, RAOT_FIXED_SLOPE);

    x += raot_fixed_times(x, 8192 - raot_fixed_times(half, x)) * 4;
    x += raot_fixed_times(x, 8192 - raot_fixed_times(half, x)) * 4;
    x += raot_fixed_times(x, 8192 - raot_fixed_times(half, x)) * 4;
    return x;
}

/* At most 1 - 2^-15. */
static inline int32_t raot_fixed_below_one(int32_t x)
{
    return x < 0x7fff ? x : 0x7fff;
}

static inline int32_t raot_fixed_sigmoid_i32(int32_t x)
{
    const int32_t magnitude = x > 0 ? x : x < 0 ? -x : 1;
    const int32_t twice = raot_fixed_quotient(raot_fixed_exp(magnitude)) * 2;
    const int32_t above = raot_fixed_below_one(twice);

    return x > 0 ? above : x < 0 ? 0x7fff - above : 0x4000;
}

static inline int32_t raot_fixed_tanh_i32(int32_t x)
{
    const int32_t magnitude = x > 0 ? x : x < 0 ? -x : 1;
    const int32_t rest = raot_fixed_quotient(raot_fixed_exp(2 * magnitude)) - 8192;
    const int32_t above = raot_fixed_below_one(rest * 4);

    return x > 0 ? above : x < 0 ? -above : 0;
}

#if defined(RAOT_MVE)
/* exp(-x) for the number before x * 2^-places, of 16 bits. */
static inline int16x8_t raot_fixed_exp_lanes(uint16x8_t before, int32_t places)
{
    const uint16x8_t last = vshrq_n_u16(vshlq_r_u16(before, places + 3), 3);
    const int16x8_t a = vsubq_s16(vdupq_n_s16((int16_t)(4096 - ((int32_t)1 << places))),
                                  vreinterpretq_s16_u16(last));
    const int16x8_t square = vqrdmulhq_s16(a, a);
    const int16x8_t fourth = vrshrq_n_s16(vqrdmulhq_s16(square, square), 2);
    const int16x8_t third = vaddq_s16(fourth, vqrdmulhq_s16(square, a));
    const int16x8_t both = vaddq_s16(vqrdmulhq_n_s16(third, RAOT_FIXED_THIRD), square);
    const int16x8_t sum = vaddq_s16(a, vrshrq_n_s16(both, 1));
    const int32_t end = places > 4 ? (int32_t)0x80000 >> places : 0x7fff;
    int16x8_t e = vaddq_n_s16(vqrdmulhq_n_s16(sum, RAOT_FIXED_MIDDLE), RAOT_FIXED_MIDDLE);

    /* The bit of a factor becomes the sign. */
#define RAOT_FIXED_POWER(PLACE, FACTOR) \
    e = vqrdmulhq_m_n_s16(              \
        e, e, FACTOR,                   \
        vcmpltq_n_s16(vreinterpretq_s16_u16(vshlq_r_u16(before, places + 15 - PLACE)), 0));
    RAOT_FIXED_POWERS(RAOT_FIXED_POWER)
#undef RAOT_FIXED_POWER
    if (places > 4) {
        e = vpselq_s16(vdupq_n_s16(0), e, vcmpcsq_n_u16(before, (uint16_t)end));
    }
    return e;
}

/* 2 / (1 + e) */
static inline int16x8_t raot_fixed_quotient_lanes(int16x8_t e)
{
    const int16x8_t one = vdupq_n_s16(8192);
    const int16x8_t half = vaddq_n_s16(vshrq_n_s16(e, 1), 0x4000);
    int16x8_t x = vaddq_n_s16(vqrdmulhq_n_s16(half, RAOT_FIXED_SLOPE), RAOT_FIXED_START);

    x = vaddq_s16(x, vshlq_n_s16(vqrdmulhq_s16(x, vsubq_s16(one, vqrdmulhq_s16(half, x))), 2));
    x = vaddq_s16(x, vshlq_n_s16(vqrdmulhq_s16(x, vsubq_s16(one, vqrdmulhq_s16(half, x))), 2));
    return vaddq_s16(x, vshlq_n_s16(vqrdmulhq_s16(x, vsubq_s16(one, vqrdmulhq_s16(half, x))), 2));
}

static inline int16x8_t raot_fixed_sigmoid_lanes(int16x8_t x, int32_t bits)
{
    const uint16x8_t before = vqsubq_n_u16(vreinterpretq_u16_s16(vabsq_s16(x)), 1);
    const int16x8_t e = raot_fixed_exp_lanes(before, bits);
    const int16x8_t above = vqshlq_n_s16(raot_fixed_quotient_lanes(e), 1);
    const int16x8_t below = vsubq_s16(vdupq_n_s16(0x7fff), above);
    const int16x8_t some = vpselq_s16(below, above, vcmpltq_n_s16(x, 0));

    return vpselq_s16(vdupq_n_s16(0x4000), some, vcmpeqq_n_s16(x, 0));
}

static inline int16x8_t raot_fixed_tanh_lanes(int16x8_t x, int32_t bits)
{
    const uint16x8_t before = vqsubq_n_u16(vreinterpretq_u16_s16(vabsq_s16(x)), 1);
    const int16x8_t e = raot_fixed_exp_lanes(before, bits + 1);
    const int16x8_t above = vqshlq_n_s16(vsubq_n_s16(raot_fixed_quotient_lanes(e), 8192), 2);
    const int16x8_t some = vnegq_m_s16(above, above, vcmpltq_n_s16(x, 0));

    return vpselq_s16(vdupq_n_s16(0), some, vcmpeqq_n_s16(x, 0));
}

#define RAOT_FIXED_ROW(NAME)                                                \
    __attribute__((noinline, unused)) static void raot_fixed_##NAME##_s16(  \
        int16_t *values, const int16_t *from, int32_t count, int32_t bits)  \
    {                                                                       \
        for (; count > 0; count -= 8) {                                     \
            const mve_pred16_t some = vctp16q((uint32_t)count);             \
            const int16x8_t x = vldrhq_z_s16(from, some);                   \
            vstrhq_p_s16(values, raot_fixed_##NAME##_lanes(x, bits), some); \
            values += 8;                                                    \
            from += 8;                                                      \
        }                                                                   \
    }
#else
#if defined(RAOT_ASM_THUMB) && defined(RAOT_DSP)
/* clang-format off */
/* exp(-x) for the last quarter of x, whose last three bits are 0: of 8, 16, 24 and so on. */
static inline const uint16_t *raot_fixed_exps(void)
{
    static const uint16_t exps[1024] = {
        32760, 32752, 32745, 32737, 32729, 32721, 32713, 32705, 32697, 32689, 32681, 32673,
        32664, 32656, 32648, 32641, 32633, 32625, 32617, 32610, 32601, 32593, 32585, 32577,
        32569, 32561, 32553, 32546, 32538, 32529, 32521, 32513, 32505, 32497, 32490, 32482,
        32475, 32467, 32458, 32450, 32442, 32434, 32427, 32419, 32411, 32402, 32394, 32387,
        32379, 32371, 32363, 32355, 32347, 32339, 32332, 32324, 32316, 32308, 32300, 32292,
        32284, 32277, 32269, 32261, 32253, 32245, 32237, 32229, 32221, 32213, 32205, 32197,
        32189, 32182, 32174, 32166, 32159, 32151, 32143, 32135, 32127, 32119, 32111, 32104,
        32096, 32088, 32080, 32072, 32064, 32056, 32048, 32041, 32033, 32025, 32017, 32009,
        32001, 31994, 31986, 31979, 31971, 31963, 31955, 31947, 31940, 31932, 31924, 31916,
        31908, 31901, 31893, 31885, 31877, 31869, 31861, 31853, 31846, 31838, 31830, 31822,
        31815, 31807, 31799, 31791, 31784, 31776, 31768, 31761, 31753, 31745, 31738, 31730,
        31722, 31714, 31707, 31699, 31691, 31683, 31676, 31668, 31660, 31652, 31644, 31637,
        31629, 31621, 31613, 31606, 31598, 31590, 31583, 31575, 31567, 31559, 31552, 31544,
        31536, 31528, 31521, 31513, 31506, 31498, 31491, 31483, 31475, 31468, 31460, 31452,
        31445, 31437, 31429, 31422, 31414, 31406, 31398, 31391, 31383, 31375, 31368, 31360,
        31352, 31345, 31337, 31329, 31322, 31314, 31306, 31298, 31291, 31283, 31275, 31268,
        31260, 31253, 31245, 31237, 31230, 31222, 31214, 31207, 31199, 31192, 31184, 31176,
        31169, 31161, 31154, 31146, 31138, 31130, 31123, 31115, 31108, 31100, 31092, 31085,
        31077, 31070, 31062, 31055, 31047, 31040, 31032, 31025, 31017, 31010, 31002, 30995,
        30987, 30980, 30972, 30964, 30957, 30949, 30942, 30934, 30927, 30919, 30912, 30904,
        30896, 30889, 30881, 30874, 30866, 30859, 30851, 30844, 30836, 30829, 30821, 30814,
        30806, 30799, 30791, 30784, 30776, 30769, 30761, 30754, 30746, 30738, 30731, 30723,
        30716, 30708, 30701, 30693, 30686, 30678, 30671, 30664, 30656, 30649, 30641, 30634,
        30626, 30619, 30611, 30604, 30596, 30589, 30581, 30574, 30567, 30559, 30552, 30544,
        30537, 30529, 30522, 30514, 30507, 30499, 30492, 30484, 30477, 30469, 30462, 30454,
        30447, 30439, 30432, 30424, 30417, 30409, 30402, 30394, 30387, 30380, 30372, 30365,
        30357, 30350, 30343, 30335, 30328, 30321, 30313, 30306, 30298, 30291, 30284, 30276,
        30269, 30262, 30254, 30247, 30239, 30232, 30225, 30217, 30210, 30203, 30195, 30188,
        30181, 30173, 30166, 30159, 30151, 30144, 30137, 30129, 30122, 30115, 30107, 30100,
        30093, 30085, 30078, 30071, 30063, 30056, 30048, 30041, 30033, 30026, 30019, 30011,
        30004, 29997, 29989, 29982, 29975, 29967, 29960, 29953, 29945, 29938, 29931, 29923,
        29916, 29909, 29902, 29894, 29887, 29880, 29873, 29865, 29858, 29851, 29844, 29836,
        29829, 29822, 29815, 29807, 29800, 29793, 29786, 29778, 29771, 29763, 29756, 29748,
        29741, 29734, 29727, 29720, 29712, 29705, 29698, 29691, 29683, 29676, 29669, 29662,
        29655, 29647, 29640, 29633, 29626, 29619, 29611, 29604, 29597, 29590, 29583, 29575,
        29568, 29560, 29553, 29546, 29539, 29531, 29524, 29517, 29510, 29503, 29496, 29489,
        29481, 29474, 29467, 29460, 29453, 29446, 29438, 29431, 29424, 29417, 29410, 29402,
        29395, 29388, 29380, 29373, 29366, 29359, 29352, 29345, 29338, 29331, 29323, 29316,
        29309, 29302, 29295, 29288, 29281, 29274, 29267, 29260, 29252, 29245, 29237, 29230,
        29223, 29216, 29209, 29202, 29195, 29188, 29181, 29174, 29166, 29159, 29152, 29145,
        29138, 29131, 29124, 29117, 29110, 29102, 29095, 29088, 29081, 29074, 29067, 29060,
        29053, 29046, 29039, 29032, 29024, 29017, 29010, 29003, 28996, 28989, 28982, 28974,
        28967, 28960, 28953, 28946, 28939, 28932, 28925, 28918, 28911, 28904, 28897, 28890,
        28883, 28876, 28869, 28862, 28854, 28847, 28840, 28833, 28826, 28819, 28812, 28806,
        28799, 28792, 28785, 28778, 28771, 28764, 28757, 28749, 28742, 28735, 28728, 28721,
        28714, 28707, 28700, 28693, 28686, 28679, 28672, 28666, 28659, 28651, 28644, 28637,
        28630, 28623, 28616, 28609, 28602, 28595, 28588, 28582, 28575, 28568, 28561, 28554,
        28546, 28539, 28532, 28525, 28518, 28512, 28505, 28498, 28491, 28484, 28477, 28470,
        28463, 28456, 28449, 28442, 28435, 28428, 28421, 28414, 28407, 28401, 28394, 28387,
        28380, 28373, 28366, 28359, 28352, 28345, 28338, 28331, 28324, 28317, 28311, 28304,
        28297, 28290, 28283, 28276, 28269, 28262, 28255, 28248, 28241, 28235, 28228, 28221,
        28214, 28207, 28201, 28193, 28186, 28179, 28172, 28166, 28159, 28152, 28145, 28139,
        28132, 28125, 28118, 28111, 28104, 28097, 28090, 28083, 28077, 28070, 28063, 28056,
        28050, 28043, 28035, 28028, 28022, 28015, 28008, 28001, 27995, 27988, 27981, 27974,
        27968, 27960, 27953, 27946, 27940, 27933, 27926, 27920, 27913, 27906, 27899, 27892,
        27885, 27878, 27871, 27864, 27858, 27851, 27844, 27838, 27831, 27824, 27817, 27810,
        27803, 27796, 27790, 27783, 27776, 27770, 27763, 27756, 27750, 27743, 27735, 27729,
        27722, 27715, 27709, 27702, 27695, 27689, 27682, 27675, 27668, 27661, 27654, 27648,
        27641, 27635, 27628, 27621, 27615, 27607, 27600, 27594, 27587, 27581, 27574, 27567,
        27561, 27554, 27547, 27540, 27533, 27527, 27520, 27513, 27507, 27500, 27494, 27487,
        27480, 27473, 27466, 27459, 27453, 27446, 27439, 27433, 27426, 27420, 27412, 27406,
        27399, 27392, 27386, 27379, 27373, 27366, 27359, 27352, 27345, 27339, 27332, 27326,
        27319, 27313, 27306, 27299, 27292, 27286, 27279, 27273, 27266, 27259, 27253, 27246,
        27239, 27232, 27226, 27219, 27213, 27206, 27199, 27193, 27186, 27179, 27172, 27166,
        27159, 27153, 27146, 27140, 27133, 27127, 27119, 27113, 27106, 27100, 27093, 27087,
        27080, 27074, 27066, 27060, 27054, 27047, 27041, 27034, 27028, 27021, 27014, 27007,
        27000, 26994, 26987, 26981, 26975, 26968, 26961, 26954, 26948, 26941, 26935, 26929,
        26922, 26916, 26909, 26902, 26895, 26889, 26883, 26876, 26870, 26863, 26856, 26850,
        26843, 26836, 26830, 26823, 26817, 26811, 26804, 26797, 26790, 26784, 26778, 26771,
        26765, 26759, 26751, 26745, 26738, 26732, 26726, 26719, 26713, 26706, 26699, 26692,
        26686, 26680, 26673, 26667, 26661, 26653, 26647, 26641, 26634, 26628, 26621, 26615,
        26608, 26601, 26595, 26589, 26582, 26576, 26570, 26563, 26556, 26550, 26543, 26537,
        26530, 26524, 26518, 26511, 26504, 26498, 26492, 26485, 26479, 26473, 26466, 26459,
        26453, 26447, 26440, 26434, 26427, 26421, 26414, 26407, 26401, 26395, 26389, 26382,
        26375, 26369, 26363, 26356, 26350, 26343, 26337, 26330, 26324, 26317, 26311, 26305,
        26299, 26292, 26285, 26279, 26273, 26266, 26260, 26253, 26247, 26240, 26234, 26228,
        26221, 26215, 26209, 26203, 26195, 26189, 26183, 26177, 26170, 26164, 26158, 26151,
        26144, 26138, 26132, 26126, 26120, 26113, 26106, 26100, 26093, 26087, 26081, 26075,
        26068, 26061, 26055, 26049, 26043, 26037, 26030, 26024, 26017, 26011, 26005, 25998,
        25992, 25985, 25979, 25973, 25967, 25961, 25954, 25947, 25941, 25935, 25928, 25922,
        25916, 25910, 25903, 25897, 25891, 25884, 25878, 25872, 25865, 25859, 25852, 25846,
        25840, 25834, 25827, 25821, 25814, 25808, 25802, 25796, 25790, 25783, 25777, 25771,
        25765, 25759, 25752, 25746, 25739, 25733, 25727, 25721, 25714, 25708, 25702, 25696,
        25689, 25683, 25677, 25670, 25664, 25658, 25652, 25646, 25639, 25632, 25626, 25620,
        25614, 25608, 25602, 25595, 25589, 25583, 25576, 25570, 25564, 25557, 25551, 25545,
        25539, 25533, 25527, 25520,
    };

    return exps;
}

/*
 * r0, r1, r2   values, arguments, and how many
 * r3           exponentials
 * r4, lr       1 / 2 and 1 / 4 in steps of 2^-15
 * r5 to r7     factors in pairs
 * r8           Newton's line
 * r10 to r12   results, arguments less 1, and what is computed from them
 */
#define RAOT_FIXED_BEGIN \
    "push {r4-r8, r10, r11, lr}\n movw r4, #0x4000\n movw lr, #0x2000\n" \
    "movw r5, #25520\n movt r5, #19875\n movw r6, #12055\n movt r6, #4435\n" \
    "movw r7, #600\n movt r7, #11\n movw r8, #23130\n movt r8, #0xc3c4\n" \
    "1: ldrsh r10, [r1]\n eor r11, r10, r10, asr #31\n sub r11, r11, r10, asr #31\n" \
    "subs r11, #1\n usat r11, #15, r11\n"
/* Multiplications by two factors, where bits are set: that of the sign after a shift, and the one
   above. */
#define RAOT_FIXED_TWO(SHIFT, PAIR) \
    "lsls r12, r11, #" SHIFT "\n" \
    "itt mi\n smlabbmi r10, r10, " PAIR ", r4\n asrmi r10, r10, #15\n" \
    "itt cs\n smlabtcs r10, r10, " PAIR ", r4\n asrcs r10, r10, #15\n"
#define RAOT_FIXED_STEP \
    "smlabb r12, r11, r10, r4\n sub r12, lr, r12, asr #15\n" \
    "smlabb r12, r10, r12, r4\n asr r12, r12, #15\n add r10, r10, r12, lsl #2\n"
#define RAOT_FIXED_QUOTIENT \
    "add r11, r10, #0x8000\n asrs r11, r11, #1\n smlabt r10, r11, r8, r4\n" \
    "asr r10, r10, #15\n uxtah r10, r10, r8\n" \
    RAOT_FIXED_STEP RAOT_FIXED_STEP RAOT_FIXED_STEP
#define RAOT_FIXED_END \
    "strh r10, [r0], #2\n subs r2, #1\n bgt 1b\n pop {r4-r8, r10, r11, pc}\n"
#define RAOT_FIXED_ASM(NAME, EXP, RESULT) \
    RAOT_NAKED static void raot_fixed_##NAME##_row( \
        RAOT_ARGUMENT int16_t *values, RAOT_ARGUMENT const int16_t *from, \
        RAOT_ARGUMENT int32_t count, RAOT_ARGUMENT const uint16_t *exps) \
    { \
        __asm volatile(RAOT_FIXED_BEGIN EXP RAOT_FIXED_QUOTIENT RESULT RAOT_FIXED_END); \
    }
#define RAOT_FIXED_TANH \
    "sub r10, r10, lr\n usat r10, #15, r10, lsl #2\n ldrsh r12, [r1], #2\n" \
    "eor r10, r10, r12, asr #31\n sub r10, r10, r12, asr #31\n" \
    "cmp r12, #0\n it eq\n moveq r10, #0\n"
RAOT_FIXED_ASM(sigmoid_3,
    "ubfx r10, r11, #0, #10\n ldrh r10, [r3, r10, lsl #1]\n"
    RAOT_FIXED_TWO("21", "r5") RAOT_FIXED_TWO("19", "r6")
    "lsls r12, r11, #17\n itt mi\n smlabbmi r10, r10, r7, r4\n asrmi r10, r10, #15\n",
    "usat r10, #15, r10, lsl #1\n ldrsh r12, [r1], #2\n eor r10, r10, r12, lsr #17\n")
RAOT_FIXED_ASM(tanh_3,
    "ubfx r10, r11, #0, #9\n adds r3, #2\n ldrh r10, [r3, r10, lsl #2]\n subs r3, #2\n"
    RAOT_FIXED_TWO("22", "r5") RAOT_FIXED_TWO("20", "r6") RAOT_FIXED_TWO("18", "r7"),
    RAOT_FIXED_TANH)
RAOT_FIXED_ASM(tanh_4,
    "ubfx r10, r11, #0, #8\n adds r3, #6\n ldrh r10, [r3, r10, lsl #3]\n subs r3, #6\n"
    RAOT_FIXED_TWO("23", "r5") RAOT_FIXED_TWO("21", "r6") RAOT_FIXED_TWO("19", "r7")
    "lsls r12, r11, #17\n it mi\n movmi r10, #0\n",
    RAOT_FIXED_TANH)
#undef RAOT_FIXED_ASM
/* clang-format on */
#endif

#define RAOT_FIXED_ROW(NAME)                                               \
    __attribute__((noinline, unused)) static void raot_fixed_##NAME##_s16( \
        int16_t *values, const int16_t *from, int32_t count, int32_t bits) \
    {                                                                      \
        RAOT_FIXED_FAST(NAME)                                              \
        /*@ loop unroll 4096; */                                           \
        for (int32_t i = 0; i < count; i++) {                              \
            const int32_t x = from[i] * ((int32_t)1 << bits);              \
                                                                           \
            values[i] = (int16_t)raot_fixed_##NAME##_i32(x);               \
        }                                                                  \
    }
#endif

#if defined(RAOT_FIXED_BEGIN)
#define RAOT_FIXED_FAST(NAME) RAOT_FIXED_FAST_##NAME
#define RAOT_FIXED_CALL(NAME, BITS)                                          \
    if (bits == BITS) {                                                      \
        if (count > 0) {                                                     \
            raot_fixed_##NAME##_row(values, from, count, raot_fixed_exps()); \
        }                                                                    \
        return;                                                              \
    }
#define RAOT_FIXED_FAST_sigmoid RAOT_FIXED_CALL(sigmoid_3, 3)
#define RAOT_FIXED_FAST_tanh RAOT_FIXED_CALL(tanh_3, 3) RAOT_FIXED_CALL(tanh_4, 4)
#else
#define RAOT_FIXED_FAST(NAME)
#endif
RAOT_FIXED_ROW(sigmoid)
RAOT_FIXED_ROW(tanh)
#undef RAOT_FIXED_ROW

#endif
