/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raot_shim_fiber.h - fibers: a stack each, and a switch that saves the registers that the calling
 * convention preserves (System V AMD64 ABI, AAPCS64).
 */
#ifndef RAOT_SHIM_FIBER_H
#define RAOT_SHIM_FIBER_H

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
extern "C" {
void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom, size_t *size);
}
#endif

/* Address space alone, until it is touched. */
constexpr size_t FIBER_STACK = 512u * 1024u;

struct Fiber {
    void *top;
    unsigned char *stack;
    size_t size;
    void (*work)(void);
    void *fake;
    Fiber *from; /* what switched to it last */
};

extern "C" void raot_shim_switch(void **from, void *to);
extern "C" void raot_shim_begin(void);

#if defined(__x86_64__)
__asm__(".text\n"
        ".globl raot_shim_switch\n"
        ".type raot_shim_switch, @function\n"
        "raot_shim_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".globl raot_shim_begin\n"
        ".type raot_shim_begin, @function\n"
        "raot_shim_begin:\n"
        "    mov %rbx, %rdi\n"
        "    call raot_shim_enter\n"
        "    ud2\n");
constexpr size_t FIBER_SAVED = 9, FIBER_RETURN = 6, FIBER_ARGUMENT = 4;
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl raot_shim_switch\n"
        ".type raot_shim_switch, %function\n"
        "raot_shim_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n    stp x21, x22, [sp, #16]\n    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n    stp x27, x28, [sp, #64]\n    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n    stp d10, d11, [sp, #112]\n    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n    str x9, [x0]\n    mov sp, x1\n"
        "    ldp x19, x20, [sp]\n    ldp x21, x22, [sp, #16]\n    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n    ldp x27, x28, [sp, #64]\n    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n    ldp d10, d11, [sp, #112]\n    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".globl raot_shim_begin\n"
        ".type raot_shim_begin, %function\n"
        "raot_shim_begin:\n"
        "    mov x0, x19\n"
        "    bl raot_shim_enter\n"
        "    brk #0\n");
constexpr size_t FIBER_SAVED = 20, FIBER_RETURN = 11, FIBER_ARGUMENT = 0;
#else
#error "fibers are written for x86-64 and aarch64"
#endif

inline void fiber_switch(Fiber *from, Fiber *to)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake, to->stack, to->size);
#endif
    to->from = from;
    raot_shim_switch(&from->top, to->top);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

extern "C" void raot_shim_enter(Fiber *fiber)
{
#if defined(__SANITIZE_ADDRESS__)
    const void *bottom;

    /* The first switch from a stack tells its bounds. */
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &fiber->from->size);
    fiber->from->stack = static_cast<unsigned char *>(const_cast<void *>(bottom));
#endif
    fiber->work();
}

/* The lowest page is no memory: a stack that is too small faults. */
inline Fiber *fiber_new(void (*work)(void))
{
    const size_t page = 65536u;
    void *const block = mmap(nullptr, FIBER_STACK, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    Fiber *const fiber = new Fiber();

    if (block == MAP_FAILED || mprotect(block, page, PROT_NONE) != 0) {
        std::fprintf(stderr, "raot_shim: no memory for the stack of a thread\n");
        std::abort();
    }
    fiber->stack = static_cast<unsigned char *>(block);
    fiber->size = FIBER_STACK;
    fiber->work = work;

    /* Stacks that end at the same places of pages would share few lines of the cache. */
    static size_t lines;
    unsigned char *const end = fiber->stack + FIBER_STACK - lines++ % 64u * 64u;
    void **const top = reinterpret_cast<void **>(end) - FIBER_SAVED;

    top[FIBER_RETURN] = reinterpret_cast<void *>(raot_shim_begin);
    top[FIBER_ARGUMENT] = fiber;
    fiber->top = top;
    return fiber;
}

#endif
