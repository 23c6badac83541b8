/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize_channels.h - requantization of the i32 sums of some channels to bytes.
 *
 * out[n * channel_step + c * step], for n < channels and c < count, is a requantized sum, as in
 * requantize_channel.h. Each channel has a start and a scale of its own. Its sums are `count` apart
 * from those of the next one, rounded up to a multiple of eight.
 */
#ifndef RAOT_REQUANTIZE_CHANNELS_H
#define RAOT_REQUANTIZE_CHANNELS_H

#include <stdint.h>

#include "requantize_channel.h"

/* Unsigned bytes are stored like signed ones. */
#define raot_requantize_channels_f32_u8_unpacked(out, ...) \
    raot_requantize_channels_f32_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_channels_nearest_u8_unpacked(out, ...) \
    raot_requantize_channels_nearest_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_channels_twice_u8_unpacked(out, ...) \
    raot_requantize_channels_twice_unpacked((int8_t *)(out), __VA_ARGS__)
#define raot_requantize_channels_above_u8_unpacked(out, ...) \
    raot_requantize_channels_above_unpacked((int8_t *)(out), __VA_ARGS__)

/* Sizes of the functions below, by name. */
struct raot_requantize_channels {
    int32_t channels;
    int32_t count;
    int32_t channel_step;
    int32_t step;
    int32_t zero;
    int32_t low;
    int32_t high;
};

#define RAOT_REQUANTIZE_CHANNELS(FUNCTION, out, sums, start, scale, sizes)                      \
    FUNCTION(out, sums, start, scale, (sizes)->channels, (sizes)->count, (sizes)->channel_step, \
             (sizes)->step, (sizes)->zero, (sizes)->low, (sizes)->high)
#define raot_requantize_channels_f32(...) \
    RAOT_REQUANTIZE_CHANNELS(raot_requantize_channels_f32_unpacked, __VA_ARGS__)
#define raot_requantize_channels_f32_u8(...) \
    RAOT_REQUANTIZE_CHANNELS(raot_requantize_channels_f32_u8_unpacked, __VA_ARGS__)
#define raot_requantize_channels_nearest(...) \
    RAOT_REQUANTIZE_CHANNELS(raot_requantize_channels_nearest_unpacked, __VA_ARGS__)
#define raot_requantize_channels_nearest_u8(...) \
    RAOT_REQUANTIZE_CHANNELS(raot_requantize_channels_nearest_u8_unpacked, __VA_ARGS__)
#define raot_requantize_channels_above(...) \
    RAOT_REQUANTIZE_CHANNELS(raot_requantize_channels_above_unpacked, __VA_ARGS__)
#define raot_requantize_channels_above_u8(...) \
    RAOT_REQUANTIZE_CHANNELS(raot_requantize_channels_above_u8_unpacked, __VA_ARGS__)
#define raot_requantize_channels_twice(...) \
    RAOT_REQUANTIZE_CHANNELS(raot_requantize_channels_twice_unpacked, __VA_ARGS__)
#define raot_requantize_channels_twice_u8(...) \
    RAOT_REQUANTIZE_CHANNELS(raot_requantize_channels_twice_u8_unpacked, __VA_ARGS__)

#endif
