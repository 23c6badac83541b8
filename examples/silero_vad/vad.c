/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vad.c - print how likely speech is in each 512 samples (32 ms) of a WAV file.
 *
 *     vad speech.wav
 *
 * Uses the C project that relax_aot makes of Silero VAD; see README.md. The model sees the last 64
 * samples of the chunk before as context, and keeps its memory of the past in a state block.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "silero.h"

enum {
    SAMPLE_RATE = 16000,
    CHUNK = 512,
    CONTEXT = 64,
    SEQUENCE = CONTEXT + CHUNK,
    WAVE_FORMAT_PCM = 0x0001,
    WAVE_FORMAT_EXTENSIBLE = 0xFFFE,
    FORMAT_BYTES = 16,          /* of a `fmt ` chunk, at least */
    FORMAT_EXTENDED_BYTES = 40, /* of one that ends in a sub-format */
    SUBFORMAT_OFFSET = 24
};

/* Writers that do not know the length yet leave one of these; the data then ends with the file. */
#define LENGTH_UNKNOWN UINT32_C(0xFFFFFFFF)

_Static_assert(SEQUENCE == SILERO_SEQUENCE_MAX, "compile the model with --bound sequence=576..576");
_Static_assert(SILERO_OUTPUT_BYTES >= sizeof(float), "one probability per chunk");

SILERO_ARENA(static, arena);
static RAOT_ALIGNAS(SILERO_ALIGNMENT) unsigned char state[SILERO_STATE_BYTES];
static float input[SEQUENCE];
static float output[SILERO_OUTPUT_BYTES / sizeof(float)];

static uint16_t read_u16(const unsigned char *bytes)
{
    return (uint16_t)(bytes[0] | (unsigned)bytes[1] << 8);
}

static uint32_t read_u32(const unsigned char *bytes)
{
    return read_u16(bytes) | (uint32_t)read_u16(bytes + 2) << 16;
}

/* Reads on instead of seeking, so that pipes work too. 1 where all was there. */
static int skip(FILE *file, uint64_t bytes)
{
    unsigned char ignored[256];

    while (bytes > 0) {
        const size_t part = bytes < sizeof(ignored) ? (size_t)bytes : sizeof(ignored);

        if (fread(ignored, 1, part, file) != part) {
            return 0;
        }
        bytes -= part;
    }
    return 1;
}

/* A `fmt ` chunk of so many bytes. NULL where it is what the model takes, else what is wrong. */
static const char *check_format(FILE *file, uint32_t bytes)
{
    unsigned char format[FORMAT_EXTENDED_BYTES] = {0};
    const size_t known = bytes < sizeof(format) ? bytes : sizeof(format);

    if (bytes < FORMAT_BYTES || fread(format, 1, known, file) != known ||
        !skip(file, (uint64_t)bytes - known + (bytes & 1u))) {
        return "its format chunk is cut off";
    }
    uint16_t encoding = read_u16(format);

    if (encoding == WAVE_FORMAT_EXTENSIBLE && known == FORMAT_EXTENDED_BYTES) {
        encoding = read_u16(format + SUBFORMAT_OFFSET);
    }
    if (encoding != WAVE_FORMAT_PCM || read_u16(format + 14) != 16) {
        return "its samples are not 16-bit PCM";
    }
    if (read_u16(format + 2) != 1) {
        return "it has more than one channel";
    }
    if (read_u32(format + 4) != SAMPLE_RATE) {
        return "its sample rate is not 16000 Hz";
    }
    return NULL;
}

/* Moves to the first sample and tells how many bytes follow. NULL, or what is wrong. */
static const char *find_samples(FILE *file, uint64_t *data_bytes)
{
    unsigned char header[12];
    int has_format = 0;

    if (fread(header, 1, sizeof(header), file) != sizeof(header) ||
        memcmp(header, "RIFF", 4) != 0 || memcmp(header + 8, "WAVE", 4) != 0) {
        return "it is not a WAV file";
    }
    for (;;) {
        unsigned char chunk[8];

        if (fread(chunk, 1, sizeof(chunk), file) != sizeof(chunk)) {
            return "it has no samples";
        }
        const uint32_t bytes = read_u32(chunk + 4);

        if (memcmp(chunk, "data", 4) == 0) {
            *data_bytes = bytes == LENGTH_UNKNOWN ? UINT64_MAX : bytes;
            return has_format ? NULL : "its samples come before their format";
        }
        if (memcmp(chunk, "fmt ", 4) == 0) {
            const char *const wrong = check_format(file, bytes);

            if (wrong != NULL) {
                return wrong;
            }
            has_format = 1;
        } else if (!skip(file, (uint64_t)bytes + (bytes & 1u))) { /* chunks are padded to even */
            return "it has no samples";
        }
    }
}

/* The next samples as -1 to 1, and zeros where the file ends. Tells how many there were. */
static int read_chunk(FILE *file, uint64_t *data_bytes, float *samples)
{
    unsigned char bytes[2 * CHUNK];
    const size_t wanted = *data_bytes < sizeof(bytes) ? (size_t)*data_bytes : sizeof(bytes);
    const size_t got = fread(bytes, 1, wanted, file);
    const int count = (int)(got / 2);

    *data_bytes = got < wanted ? 0 : *data_bytes - got;
    for (int i = 0; i < CHUNK; i++) {
        const int32_t value = i < count ? read_u16(bytes + 2 * i) : 0;

        samples[i] = (float)(value < 32768 ? value : value - 65536) / 32768.0f;
    }
    return count;
}

static enum raot_status print_speech(FILE *file, uint64_t data_bytes)
{
    const struct silero_memory memory = {
        .arena = arena, .arena_bytes = sizeof(arena), .state = state};
    const struct silero_inputs in = {.input = input};
    const struct silero_outputs out = {.output = output};
    enum raot_status status = silero_init(&memory);

    while (status == RAOT_OK && read_chunk(file, &data_bytes, input + CONTEXT) > 0) {
        status = silero_run(&memory, &in, &out);
        if (status == RAOT_OK) {
            printf("%.6f\n", (double)output[0]);
        }
        memcpy(input, input + CHUNK, CONTEXT * sizeof(float));
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: vad FILE.wav   (16-bit PCM, one channel, 16000 Hz)\n");
        return 2;
    }
    FILE *const file = fopen(argv[1], "rb");
    uint64_t data_bytes = 0;

    if (file == NULL) {
        perror(argv[1]);
        return 2;
    }
    const char *const wrong = find_samples(file, &data_bytes);
    enum raot_status status = RAOT_OK;

    if (wrong != NULL) {
        fprintf(stderr, "%s: %s\n", argv[1], wrong);
    } else {
        status = print_speech(file, data_bytes);
    }
    if (status != RAOT_OK) {
        fprintf(stderr, "the model failed with status %d\n", (int)status);
    }
    fclose(file);
    return wrong != NULL ? 2 : status != RAOT_OK;
}
