/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What a program can tell Pagewalk, and ask it. For C and C++. On processors other
 * than x86-64, and on systems other than Linux, everything here does nothing.
 *
 * The region of interest of a program that Pagewalk runs:
 *
 *     #include "pagewalk.h"
 *     pagewalk_roi_begin();
 *     ... what is to be measured ...
 *     pagewalk_roi_end();
 *
 * Then `pagewalk run --roi -- ./program` measures only what lies between. Each
 * mark is one no-operation instruction with a distinctive displacement, so the
 * program runs unchanged, and at full speed, without Pagewalk.
 *
 * `pagewalk validate --roi` measures the same region on the processor at hand. For that the
 * program is compiled with -DPAGEWALK_PERF. Its marks then also switch perf's counters or report
 * to the clock of `pagewalk validate`, where the environment says how (some thousand
 * instructions outside of the region, else a getenv).
 *
 * A table from integers to virtual addresses, which a simulated machine may have
 * (software translation):
 *
 *     struct node *n = (struct node *)pagewalk_load_va(hash_of_key);
 *     if (!n || !is_it(n, key)) {
 *         n = find_the_usual_way(key);
 *         pagewalk_insert_va(hash_of_key, n);
 *     }
 *
 * The machine is asked by a system call that no Linux has (see below). Where nobody
 * answers - without Pagewalk, in a recording, on a machine without such a table - the
 * first call fails, and after that no more are made: pagewalk_load_va() then gives
 * NULL at once, and the program runs as it does without the table.
 *
 * A program that calls pagewalk_stlt_alloc() first says how large its table is. Where
 * nobody answers that, it gets one in its own memory (pagewalk_stlt.h, on x86-64 Linux), which
 * serves it instead.
 *
 * Before the memory of a record is freed its row is emptied, by pagewalk_erase_va(): an
 * address that the table gives may be read, but is not always that of the integer's record.
 * Each function may be called by any thread at any time. That no record is freed between
 * being looked up and being inserted, or read, the program sees to by itself. */
#ifndef PAGEWALK_H
#define PAGEWALK_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#if defined(PAGEWALK_PERF) && defined(__linux__)
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tells perf (perf-stat(1), --control) and waits until it has done it. */
static inline void pagewalk_perf(const char *command) {
    const char *ends = getenv("PAGEWALK_PERF");
    char *next, reply[8];
    if (ends == NULL)
        return;
    int tell = (int)strtol(ends, &next, 10);
    if (*next != ',')
        return;
    int hear = (int)strtol(next + 1, NULL, 10);
    if (write(tell, command, strlen(command)) > 0)
        while (read(hear, reply, sizeof reply) < 0)
            ;
}
#else
static inline void pagewalk_perf(const char *command) { (void)command; }
#endif

/* nopl 0x53494d01(%rax) and nopl 0x53494d02(%rax), as bytes so that every
 * assembler makes the same of them. The clobber keeps the compiler from moving
 * memory accesses over the mark. */
static inline void pagewalk_roi_begin(void) {
    pagewalk_perf("enable\n");
    __asm__ __volatile__(".byte 0x0f, 0x1f, 0x80, 0x01, 0x4d, 0x49, 0x53" ::: "memory");
}
static inline void pagewalk_roi_end(void) {
    __asm__ __volatile__(".byte 0x0f, 0x1f, 0x80, 0x02, 0x4d, 0x49, 0x53" ::: "memory");
    pagewalk_perf("disable\n");
}
#else
static inline void pagewalk_roi_begin(void) {}
static inline void pagewalk_roi_end(void) {}
#endif

#if defined(__x86_64__) && defined(__LP64__) && defined(__linux__) && \
    (defined(__GNUC__) || defined(__clang__))
/* The system call: question, integer, address, and where the reply goes, two 64-bit
 * words: 1 if there is an answer, and the answer. Linux keeps 387 to 423 unused on
 * x86-64 for good. The call itself fails (ENOSYS) in any case. */
#define PAGEWALK_ASK 400
#define PAGEWALK_ASK_LOAD_VA 0
#define PAGEWALK_ASK_INSERT_VA 1
#define PAGEWALK_ASK_ALLOC 2
#define PAGEWALK_ASK_RESIZE 3
#define PAGEWALK_ASK_FREE 4

#include "pagewalk_stlt.h"

/* Not 0: nobody has answered, and nobody is asked any more. One for each file that
 * includes this. Several threads may find out at a time, which does no harm. */
static int pagewalk_unanswered;

/* Not 0: a simulated machine has answered so far, or none has been asked. */
static inline int pagewalk_answers(void) {
    return !__atomic_load_n(&pagewalk_unanswered, __ATOMIC_RELAXED);
}

/* The same questions to the table in software. */
static inline uint64_t pagewalk_software(uint64_t question, uint64_t integer, const void *va) {
    struct pagewalk_stlt *table = pagewalk_stlt_now();
    switch (question) {
    case PAGEWALK_ASK_LOAD_VA:
        return table ? pagewalk_stlt_load(table, integer) : 0;
    case PAGEWALK_ASK_INSERT_VA:
        return table ? pagewalk_stlt_insert(table, integer, (uint64_t)(uintptr_t)va) : 0;
    case PAGEWALK_ASK_ALLOC:
        return pagewalk_stlt_make(integer);
    case PAGEWALK_ASK_RESIZE:
        return pagewalk_stlt_change(integer);
    default:
        return pagewalk_stlt_end();
    }
}

/* Asks; gives the answer, 0 when there is none. Use the functions below. */
static inline uint64_t pagewalk_ask(uint64_t question, uint64_t integer, const void *va) {
    if (__builtin_expect(!__atomic_load_n(&pagewalk_unanswered, __ATOMIC_RELAXED), 1)) {
        uint64_t reply[2] = {0, 0};
        uint64_t result = PAGEWALK_ASK;
        uint64_t answer;
        /* The address of the answer is made to depend on the call's result, so that on
         * the simulated machine, too, what uses the answer waits for it, and nothing else. */
        __asm__ __volatile__("movq %5, %%r10\n\t"
                             "syscall\n\t"
                             "andl $0, %%eax\n\t"
                             "movq 8(%%r10,%%rax), %1"
                             : "+a"(result), "=r"(answer)
                             : "D"(question), "S"(integer), "d"(va), "r"(reply)
                             : "rcx", "r10", "r11", "cc", "memory");
        if (__builtin_expect(reply[0] != 0, 1))
            return answer;
        __atomic_store_n(&pagewalk_unanswered, 1, __ATOMIC_RELAXED);
    }
    return pagewalk_software(question, integer, va);
}
#else
static inline int pagewalk_answers(void) { return 0; }
static inline uint64_t pagewalk_ask(uint64_t question, uint64_t integer, const void *va) {
    (void)question;
    (void)integer;
    (void)va;
    return 0;
}
#define PAGEWALK_ASK_LOAD_VA 0
#define PAGEWALK_ASK_INSERT_VA 0
#define PAGEWALK_ASK_ALLOC 0
#define PAGEWALK_ASK_RESIZE 0
#define PAGEWALK_ASK_FREE 0
#endif

/* The virtual address that belongs to the integer in the simulated machine's table:
 * a guess, whose truth the program checks. NULL: none is known, or there is no table. */
static inline void *pagewalk_load_va(uint64_t integer) {
    return (void *)(uintptr_t)pagewalk_ask(PAGEWALK_ASK_LOAD_VA, integer, NULL);
}
/* Puts the address into the table, where it may displace another one. Not 0 if it is
 * there now; 0 if it is not, or there is no table. */
static inline int pagewalk_insert_va(uint64_t integer, const void *va) {
    return pagewalk_ask(PAGEWALK_ASK_INSERT_VA, integer, va) != 0;
}
/* Empties the row that matches the integer, if there is one. */
static inline void pagewalk_erase_va(uint64_t integer) {
    pagewalk_ask(PAGEWALK_ASK_INSERT_VA, integer, NULL);
}

/* System calls of a machine with STLT, of which a process has at most one: not 0 if done.
 * Rows are a power of two, from 256 to 2^26. On such a machine a process that never calls
 * pagewalk_stlt_alloc() has a table from its first question on, and pagewalk_stlt_free()
 * ends that, too. A forked child has none of its parent's rows on the simulated machine;
 * in software it has a copy. */

/* An empty table of so many rows; 0: of as many as the machine has, 2^20 in software. */
static inline int pagewalk_stlt_alloc(uint64_t rows) {
    return pagewalk_ask(PAGEWALK_ASK_ALLOC, rows, NULL) != 0;
}
/* An empty table of so many rows instead of the one there is; 0: of as many as that has. If it
 * cannot be done on a machine without memory for it, there is none any more. */
static inline int pagewalk_stlt_resize(uint64_t rows) {
    return pagewalk_ask(PAGEWALK_ASK_RESIZE, rows, NULL) != 0;
}
/* There is no table any more. */
static inline int pagewalk_stlt_free(void) {
    return pagewalk_ask(PAGEWALK_ASK_FREE, 0, NULL) != 0;
}

#endif
