/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Loops that one limit of a core determines each. They are in assembly, so that every compiler makes
 * the same instructions.
 *
 *     core_loops LOOP ITERATIONS
 *
 * Prints the operations of an iteration, and the nanoseconds of CPU time of the region of interest.
 * `chain` is a chain of dependent additions, a cycle each: it gives the frequency. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pagewalk.h"

enum { BITS = 1 << 20 };
static uint64_t memory[512] __attribute__((aligned(4096)));
static uint8_t bits[BITS];

#define X3(s) s s s
#define X4(s) s s s s
#define X8(s) X4(s) X4(s)
#define X24(s) X8(s) X8(s) X8(s)
#define X6(op)                                                                                     \
    op "%%xmm0\n" op "%%xmm1\n" op "%%xmm2\n" op "%%xmm3\n" op "%%xmm4\n" op "%%xmm5\n"

/* `body`, n times. %0 counts down, %1 and r14 point to `memory`, and %2 to `bits`. rax and r8 to r13
 * begin with 0, rdx is odd. */
#define LOOP(name, body)                                                                           \
    static void name(uint64_t n) {                                                                 \
        __asm__ volatile(                                                                          \
            "xor %%eax, %%eax\n mov $88172645463325253, %%rdx\n xor %%r8d, %%r8d\n"                \
            "xor %%r9d, %%r9d\n xor %%r10d, %%r10d\n xor %%r11d, %%r11d\n xor %%r12d, %%r12d\n"    \
            "xor %%r13d, %%r13d\n mov %1, %%r14\n .p2align 6\n"                                    \
            "1:\n" body "dec %0\n jnz 1b\n"                                                        \
            : "+r"(n)                                                                              \
            : "r"(memory), "r"(bits)                                                               \
            : "rax", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "cc", "memory",         \
              "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7");                     \
    }

/* Either side of the branch is three instructions. */
#define SIDES                                                                                      \
    "jz 2f\n add $1, %%r8\n add $1, %%r9\n jmp 3f\n 2: add $1, %%r10\n add $1, %%r11\n nop\n 3:\n"
#define XORSHIFT                                                                                   \
    "mov %%rdx, %%rax\n shl $13, %%rax\n xor %%rax, %%rdx\n mov %%rdx, %%rax\n shr $7, %%rax\n"    \
    "xor %%rax, %%rdx\n mov %%rdx, %%rax\n shl $17, %%rax\n xor %%rax, %%rdx\n"

LOOP(chain, X24("add $1, %%rax\n"))
LOOP(add, X4("add $1, %%rax\n add $1, %%r8\n add $1, %%r9\n add $1, %%r10\n add $1, %%r11\n"
             "add $1, %%r12\n"))
LOOP(multiply, X4("imul %%rdx, %%rax\n imul %%rdx, %%r8\n imul %%rdx, %%r9\n imul %%rdx, %%r10\n"
                  "imul %%rdx, %%r11\n imul %%rdx, %%r12\n"))
LOOP(mixture, X4("imul $3, %%rdx, %%rax\n imul $3, %%rdx, %%r8\n add $1, %%r9\n"
                 "add $1, %%r10\n add $1, %%r11\n add $1, %%r12\n"))
LOOP(move, X8("mov %%rax, %%r8\n mov %%rdx, %%r9\n mov %%rax, %%r10\n"))
LOOP(load, X8("mov (%1), %%rax\n mov 64(%1), %%r8\n mov 128(%1), %%r9\n"))
LOOP(load_add, X8("add (%1), %%rax\n add 64(%1), %%r8\n add 128(%1), %%r9\n"))
LOOP(store, X8("mov %%rax, (%1)\n mov %%rax, 8(%1)\n mov %%rax, 16(%1)\n"))
LOOP(store_lines, X8("mov %%rax, (%1)\n mov %%rax, 64(%1)\n mov %%rax, 128(%1)\n"))
LOOP(load_store, X4("mov (%1), %%rax\n mov 64(%1), %%r8\n mov 128(%1), %%r9\n"
                    "mov %%r12, 192(%1)\n mov %%r12, 200(%1)\n"))
LOOP(vector_add, X4(X6("vpaddq %%xmm7, %%xmm7, ")))
LOOP(float_multiply, X4(X6("vmulsd %%xmm7, %%xmm7, ")))
LOOP(float_add, X4(X6("vaddsd %%xmm7, %%xmm7, ")))
LOOP(not_taken, X24("test %%rdx, %%rdx\n jz 1b\n"))
LOOP(taken, X24("jmp 2f\n .p2align 4\n 2:\n"))
LOOP(forward_byte, X24("mov %%al, (%1)\n movzbl (%%r14), %%eax\n"))
LOOP(forward_add, X24("mov %%rax, (%1)\n add $1, %%rax\n sub $1, %%rax\n add (%%r14), %%rax\n"))
/* Both name the address by the same register. */
LOOP(forward_same, X24("mov %%rax, (%1)\n mov (%1), %%rax\n"))
LOOP(branch, "mov %0, %%rax\n and $0xfffff, %%eax\n movzbl (%2,%%rax), %%eax\n"
             "test %%eax, %%eax\n" SIDES)
LOOP(generator, XORSHIFT "test %%rdx, %%rdx\n" SIDES)
LOOP(generator_branch, XORSHIFT "test $1, %%dl\n" SIDES)

static const struct {
    const char *name;
    void (*run)(uint64_t);
    int operations;
} loops[] = {
#define L(name, operations) {#name, name, operations}
    L(chain, 24), L(add, 24), L(multiply, 24), L(mixture, 24), L(move, 24), L(load, 24),
    L(load_add, 24), L(store, 24), L(store_lines, 24), L(load_store, 20), L(vector_add, 24),
    L(float_multiply, 24), L(float_add, 24), L(not_taken, 24), L(taken, 24), L(forward_byte, 24),
    L(forward_add, 24), L(forward_same, 24), L(branch, 1), {"branch_same", branch, 1},
    L(generator, 1), L(generator_branch, 1),
};

static double cpu_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    for (size_t i = 0; argc == 3 && i < sizeof loops / sizeof *loops; i++) {
        if (strcmp(argv[1], loops[i].name) != 0)
            continue;
        uint64_t n = strtoull(argv[2], NULL, 10), x = UINT64_C(88172645463325252);
        for (uint64_t bit = 0; loops[i].run == branch && bit < BITS && bit <= n; bit++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            bits[bit] = loops[i].name[6] != '\0' || (x >> 40 & 1) != 0;
        }
        loops[i].run(n / 10 + 1);
        double begin = cpu_time();
        pagewalk_roi_begin();
        loops[i].run(n);
        pagewalk_roi_end();
        printf("%d %.0f\n", loops[i].operations, cpu_time() - begin);
        return 0;
    }
    fprintf(stderr, "usage: core_loops LOOP ITERATIONS\n");
    return 2;
}
