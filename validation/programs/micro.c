/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Loops of a few instructions, whose time depends on memory and translation alone.
 *
 *     micro KIND MEGABYTES OPERATIONS
 *
 *     gups     read-modify-writes of random words
 *     loads    loads of random words, independent of each other
 *     stores   stores to random words
 *     chase    loads of which each has the next one's address, once through all lines
 *     copy     words copied in order to a second buffer right behind the first
 *     columns  a square matrix of words, summed by columns
 *     stream   words summed in order
 *     touch    the first store to each page
 *
 * Memory is asked for in huge pages, which the host may refuse. Each of its pages is written once
 * before the region of interest begins, except for `touch`. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "pagewalk.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, WORDS_OF_LINE = 8 };

typedef uint64_t word;

/* A value that the compiler knows nothing about: loops stay as they are written. */
static inline word opaque(word value) {
    __asm__ volatile("" : "+r"(value));
    return value;
}

static inline word next_random(word x) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static const word SEED = UINT64_C(88172645463325252);

static word *make_memory(size_t bytes) {
    void *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    uintptr_t aligned = ((uintptr_t)raw + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    madvise((void *)aligned, bytes, MADV_HUGEPAGE);
    return (word *)aligned;
}

static word gups(word *t, size_t words, word operations) {
    word x = SEED;
    for (word i = 0; i < operations; i++) {
        x = next_random(x);
        t[x & (words - 1)] ^= x;
    }
    return x;
}

static word loads(const word *t, size_t words, word operations) {
    word x = SEED, sum = 0;
    for (word i = 0; i < operations; i++) {
        x = next_random(x);
        sum += t[x & (words - 1)];
    }
    return sum;
}

static word stores(word *t, size_t words, word operations) {
    word x = SEED;
    for (word i = 0; i < operations; i++) {
        x = next_random(x);
        t[x & (words - 1)] = x;
    }
    return x;
}

/* The order of lines has the full period of a linear congruential generator, by Knuth's multiplier
 * for 64 bits (The Art of Computer Programming, vol. 2, 3.3.4). */
static void link_lines(word *t, size_t words) {
    size_t lines = words / WORDS_OF_LINE;
    for (word i = 0; i < lines; i++)
        t[i * WORDS_OF_LINE] =
            ((i * UINT64_C(6364136223846793005) + 1) & (lines - 1)) * WORDS_OF_LINE;
}

static word chase(const word *t, word operations) {
    word at = 0;
    for (word i = 0; i < operations; i++)
        at = t[at];
    return at;
}

static word copy(const word *from, word *to, size_t words, word operations) {
    for (word done = 0; done < operations; done += words)
        for (size_t i = 0; i < words && done + i < operations; i++)
            to[i] = opaque(from[i]);
    return to[0];
}

static word columns(const word *t, size_t words, word operations) {
    size_t n = 1;
    while (n * n < words)
        n *= 2;
    word sum = 0, done = 0;
    while (done < operations)
        for (size_t column = 0; column < n && done < operations; column++, done += n)
            for (size_t row = 0; row < n; row++)
                sum += opaque(t[row * n + column]);
    return sum;
}

static word stream(const word *t, size_t words, word operations) {
    word sum = 0;
    for (word done = 0; done < operations; done += words)
        for (size_t i = 0; i < words && done + i < operations; i++)
            sum += opaque(t[i]);
    return sum;
}

static word touch(word *t, word operations) {
    for (word i = 0; i < operations; i++)
        t[i * (PAGE / sizeof *t)] = opaque(i);
    return t[0];
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: micro KIND MEGABYTES OPERATIONS\n");
        return 2;
    }
    const char *kind = argv[1];
    size_t bytes = strtoull(argv[2], NULL, 10) << 20;
    word operations = strtoull(argv[3], NULL, 10);
    size_t words = bytes / sizeof(word);
    if (words == 0 || (words & (words - 1)) != 0) {
        fprintf(stderr, "micro: MEGABYTES has to be a power of two\n");
        return 2;
    }
    int touches = strcmp(kind, "touch") == 0, copies = strcmp(kind, "copy") == 0;
    if (touches && operations > bytes / PAGE) {
        fprintf(stderr, "micro: touch has %zu pages and no more operations\n", bytes / PAGE);
        return 2;
    }
    if (strcmp(kind, "columns") == 0) {
        size_t n = 1;
        while (n * n < words)
            n *= 2;
        if (n * n != words) {
            fprintf(stderr, "micro: columns takes 8, 32, 128, 512 … MEGABYTES\n");
            return 2;
        }
    }
    word *t = make_memory(copies ? 2 * bytes : bytes);
    for (size_t i = 0; !touches && i < (copies ? 2 : 1) * words; i += PAGE / sizeof(word))
        t[i] = i;
    if (strcmp(kind, "chase") == 0)
        link_lines(t, words);

    word result;
    pagewalk_roi_begin();
    if (strcmp(kind, "gups") == 0)
        result = gups(t, words, operations);
    else if (strcmp(kind, "loads") == 0)
        result = loads(t, words, operations);
    else if (strcmp(kind, "stores") == 0)
        result = stores(t, words, operations);
    else if (strcmp(kind, "chase") == 0)
        result = chase(t, operations);
    else if (copies)
        result = copy(t, t + words, words, operations);
    else if (strcmp(kind, "columns") == 0)
        result = columns(t, words, operations);
    else if (strcmp(kind, "stream") == 0)
        result = stream(t, words, operations);
    else if (touches)
        result = touch(t, operations);
    else {
        fprintf(stderr, "micro: there is no kind '%s'\n", kind);
        return 2;
    }
    pagewalk_roi_end();
    printf("%" PRIx64 "\n", result);
    return 0;
}
