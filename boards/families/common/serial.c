/* SPDX-License-Identifier: Apache-2.0 */
/* serial.c - see serial.h. */
#include "serial.h"

#include <stdint.h>

#include "raot_model.h"
#include "raot_outside.h"
#include "raot_platform.h"

enum frame_kind {
    FRAME_START = 'S', /* host: begin a session */
    FRAME_POLL = 'P',  /* host: repeat the last frame */
    FRAME_GO = 'G',    /* host: the model matches */
    FRAME_DATA = 'D',  /* host: bytes of the request */
    FRAME_ACK = 'A',   /* host: the frame was received */
    FRAME_HELLO = 'H', /* board: version and digest of the model's table, its name */
    FRAME_READ = 'R',  /* board: number of bytes of the request to send */
    FRAME_WRITE = 'W', /* board: bytes of the response */
    FRAME_FAULT = 'F', /* board: bytes of the record of a fault */
    FRAME_EXIT = 'E'   /* board: end of the session, with this code */
};

#define VERSION 1u
#define PAYLOAD_BYTES_MAX 192u
#define HEAD_BYTES 2u
#define CHECK_BYTES 4u
#define FRAME_BYTES_MAX (HEAD_BYTES + PAYLOAD_BYTES_MAX + CHECK_BYTES)

/* A frame with its checksum is shorter than 254 bytes, so COBS adds one byte. */
_Static_assert(FRAME_BYTES_MAX < 254u, "a frame is one block of COBS");

struct frame {
    uint32_t bytes; /* of the payload */
    unsigned char data[FRAME_BYTES_MAX];
};

static struct frame sent;
static struct frame received;
static unsigned char sequence;

/* CRC-32 as in Ethernet and zlib, bit by bit: small, and faster than the line. */
static uint32_t checksum(const unsigned char *from, size_t bytes, uint32_t crc)
{
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= from[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}

static void put_word(unsigned char *to, uint32_t word)
{
    for (unsigned int i = 0; i < 4u; i++) {
        to[i] = (unsigned char)(word >> (8u * i));
    }
}

static uint32_t get_word(const unsigned char *from)
{
    uint32_t word = 0;

    for (unsigned int i = 0; i < 4u; i++) {
        word |= (uint32_t)from[i] << (8u * i);
    }
    return word;
}

/* COBS: each run without zeros follows its length; a zero ends the frame. */
static void send_frame(void)
{
    const size_t bytes = HEAD_BYTES + sent.bytes + CHECK_BYTES;
    size_t run = 0;

    while (run <= bytes) {
        size_t end = run;

        while (end < bytes && sent.data[end] != 0u) {
            end++;
        }
        raot_line_put((unsigned char)(end - run + 1u));
        for (size_t i = run; i < end; i++) {
            raot_line_put(sent.data[i]);
        }
        run = end + 1u;
    }
    raot_line_put(0);
}

/* Receives one frame, up to its final zero. 0 for a damaged frame. */
static int receive_frame(void)
{
    size_t bytes = 0;
    unsigned char left = 0;
    unsigned char byte = raot_line_get();
    int first = 1;
    int good;

    for (; byte != 0u; byte = raot_line_get()) {
        if (left == 0u) {
            left = byte;
            if (!first) {
                if (bytes < FRAME_BYTES_MAX) {
                    received.data[bytes] = 0;
                }
                bytes++;
            }
            first = 0;
        } else {
            if (bytes < FRAME_BYTES_MAX) {
                received.data[bytes] = byte;
            }
            bytes++;
        }
        left--;
    }
    good = left == 0u && bytes >= HEAD_BYTES + CHECK_BYTES && bytes <= FRAME_BYTES_MAX;
    if (good) {
        received.bytes = (uint32_t)(bytes - HEAD_BYTES - CHECK_BYTES);
        good = checksum(received.data, bytes - CHECK_BYTES, 0) ==
               get_word(received.data + bytes - CHECK_BYTES);
    }
    return good;
}

/* Sends `kind` until the host answers with `wanted`; the answer is then in `received`. */
static void exchange(enum frame_kind kind, const void *payload, size_t bytes,
                     enum frame_kind wanted)
{
    sent.data[0] = (unsigned char)kind;
    sent.data[1] = sequence;
    for (size_t i = 0; i < bytes; i++) {
        sent.data[HEAD_BYTES + i] = ((const unsigned char *)payload)[i];
    }
    sent.bytes = (uint32_t)bytes;
    put_word(sent.data + HEAD_BYTES + bytes, checksum(sent.data, HEAD_BYTES + bytes, 0));
    for (;;) {
        int again = 0;

        send_frame();
        while (!again) {
            if (!receive_frame() || received.data[0] == (unsigned char)FRAME_POLL) {
                again = 1;
            } else if (received.data[0] == (unsigned char)FRAME_START) {
                if (kind == FRAME_HELLO) {
                    again = 1;
                } else {
                    raot_restart();
                }
            } else if (received.data[0] == (unsigned char)wanted && received.data[1] == sequence) {
                sequence++;
                return;
            }
            /* Otherwise it answers an earlier request. */
        }
    }
}

static uint32_t digest_words(const size_t *words, int32_t count, uint32_t crc)
{
    unsigned char bytes[4];

    for (int32_t i = 0; i < count; i++) {
        put_word(bytes, (uint32_t)words[i]);
        crc = checksum(bytes, sizeof bytes, crc);
    }
    return crc;
}

/* The digest of the model's table; serial_line.py computes the same from the image. */
static uint32_t model_digest(void)
{
    const size_t words[] = {
        raot_model.arena_bytes,          raot_model.state_bytes,
        (size_t)raot_model.dim_count,    (size_t)raot_model.input_count,
        (size_t)raot_model.output_count, (size_t)raot_model.result_count,
    };
    uint32_t crc = digest_words(words, 6, 0);

    crc = digest_words(raot_model.input_bytes, raot_model.input_count, crc);
    return digest_words(raot_model.output_bytes, raot_model.output_count, crc);
}

void raot_outside_open(void)
{
    unsigned char hello[64];
    size_t bytes = 5;

    raot_line_open();
    sequence = 0;
    hello[0] = VERSION;
    put_word(hello + 1, model_digest());
    for (const char *name = raot_model.name; *name != '\0' && bytes < sizeof hello; name++) {
        hello[bytes] = (unsigned char)*name;
        bytes++;
    }
    exchange(FRAME_HELLO, hello, bytes, FRAME_GO);
}

void raot_outside_close(void)
{
}

void raot_read(void *to, size_t bytes)
{
    unsigned char *place = to;

    while (bytes > 0) {
        const unsigned char want =
            (unsigned char)(bytes < PAYLOAD_BYTES_MAX ? bytes : PAYLOAD_BYTES_MAX);

        exchange(FRAME_READ, &want, 1, FRAME_DATA);
        if (received.bytes != want) {
            raot_exit(RAOT_EXIT_FILES);
        }
        for (unsigned int i = 0; i < want; i++) {
            place[i] = received.data[HEAD_BYTES + i];
        }
        place += want;
        bytes -= want;
    }
}

static void tell(enum frame_kind kind, const void *from, size_t bytes)
{
    const unsigned char *place = from;

    while (bytes > 0) {
        const size_t part = bytes < PAYLOAD_BYTES_MAX ? bytes : PAYLOAD_BYTES_MAX;

        exchange(kind, place, part, FRAME_ACK);
        place += part;
        bytes -= part;
    }
}

void raot_write(const void *from, size_t bytes)
{
    tell(FRAME_WRITE, from, bytes);
}

void raot_outside_fault(const void *record, size_t bytes, const void *stack, size_t stack_bytes)
{
    tell(FRAME_FAULT, record, bytes);
    tell(FRAME_FAULT, stack, stack_bytes);
}

void raot_exit(int code)
{
    unsigned char byte = (unsigned char)code;

    exchange(FRAME_EXIT, &byte, 1, FRAME_ACK);
    raot_restart();
}
