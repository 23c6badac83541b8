/* SPDX-License-Identifier: Apache-2.0 */
/*
 * platform.c - the harness as a Linux program.
 *
 * The model runs on a stack of RAOT_STACK_BYTES with an inaccessible guard area below, so that an
 * overflow is an immediate fault. Faults are written to fault.bin.
 */
#define _GNU_SOURCE
#include "raot_platform.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define GAP_BYTES ((size_t)1 << 20)
#define SIGNAL_STACK_BYTES ((size_t)64 << 10)
#define WORDS_SHOWN 256

struct fault_record {
    uint32_t magic;
    uint32_t signal;
    uint32_t code;
    uint32_t word_bytes;
    uint64_t address;
    uint64_t pc;
    uint64_t lr;
    uint64_t sp;
    uint64_t stack_limit;
    uint64_t stack_top;
};

static const int caught[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS};
static unsigned char signal_stack[SIGNAL_STACK_BYTES];
static unsigned char *stack;
static int request;
static int response;
static ucontext_t outside;
static ucontext_t inside;

void raot_exit(int code)
{
    _exit(code);
}

void raot_read(void *to, size_t bytes)
{
    unsigned char *place = to;

    while (bytes > 0) {
        const ssize_t done = read(request, place, bytes);

        if (done <= 0) {
            raot_exit(RAOT_EXIT_FILES);
        }
        place += done;
        bytes -= (size_t)done;
    }
}

static void write_all(int file, const void *from, size_t bytes)
{
    const unsigned char *place = from;

    while (bytes > 0) {
        const ssize_t done = write(file, place, bytes);

        if (done <= 0) {
            raot_exit(RAOT_EXIT_FILES);
        }
        place += done;
        bytes -= (size_t)done;
    }
}

void raot_write(const void *from, size_t bytes)
{
    write_all(response, from, bytes);
}

void *raot_stack_limit(void)
{
    return stack;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    const ucontext_t *const where = context;
    struct fault_record record = {
        .magic = RAOT_LINUX_FAULT_MAGIC,
        .signal = (uint32_t)number,
        .code = (uint32_t)info->si_code,
        .word_bytes = sizeof(uintptr_t),
        .address = (uintptr_t)info->si_addr,
        .stack_limit = (uintptr_t)stack,
        .stack_top = (uintptr_t)stack + RAOT_STACK_BYTES,
    };
    const int file = open(RAOT_FAULT_FILE, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    uint64_t from;

#if defined(__aarch64__)
    record.pc = where->uc_mcontext.pc;
    record.lr = where->uc_mcontext.regs[30];
    record.sp = where->uc_mcontext.sp;
#elif defined(__arm__)
    record.pc = where->uc_mcontext.arm_pc;
    record.lr = where->uc_mcontext.arm_lr;
    record.sp = where->uc_mcontext.arm_sp;
#else
#error "this family knows 32-bit and 64-bit Arm"
#endif
    from = record.sp > record.stack_limit ? record.sp : record.stack_limit;
    if (file >= 0) {
        write_all(file, &record, sizeof record);
        if (from < record.stack_top) {
            const size_t most = WORDS_SHOWN * sizeof(uintptr_t);
            const size_t there = (size_t)(record.stack_top - from);

            write_all(file, (const void *)(uintptr_t)from, there < most ? there : most);
        }
    }
    _exit(RAOT_EXIT_FAULT);
}

static void catch_faults(void)
{
    const stack_t own = {.ss_sp = signal_stack, .ss_size = sizeof signal_stack};
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};

    action.sa_sigaction = on_fault;
    sigaltstack(&own, NULL);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++) {
        sigaction(caught[i], &action, NULL);
    }
}

int main(void)
{
    unsigned char *const block =
        mmap(NULL, GAP_BYTES + RAOT_STACK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    request = open(RAOT_REQUEST_FILE, O_RDONLY);
    response = open(RAOT_RESPONSE_FILE, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (request < 0 || response < 0 || block == MAP_FAILED ||
        mprotect(block + GAP_BYTES, RAOT_STACK_BYTES, PROT_READ | PROT_WRITE) != 0) {
        return RAOT_EXIT_FILES;
    }
    stack = block + GAP_BYTES;
    catch_faults();
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = RAOT_STACK_BYTES;
    inside.uc_link = &outside;
    makecontext(&inside, raot_harness, 0);
    swapcontext(&outside, &inside);
    return RAOT_EXIT_DONE;
}
