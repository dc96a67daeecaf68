/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Random read-modify-writes of 8-byte words, after the HPC Challenge benchmark
 * RandomAccess: the index is drawn by Marsaglia's xorshift64 (13, 7, 17).
 *
 *     gups MEGABYTES UPDATES [huge]
 *
 * The table is asked for in 4 KB pages, with `huge` in transparent huge pages.
 * Each of its pages is written once before the region of interest begins. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "pagewalk.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

static uint64_t *make_table(size_t bytes, int advice) {
    void *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    uintptr_t aligned = ((uintptr_t)raw + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (madvise((void *)aligned, bytes, advice) != 0)
        perror("madvise");
    return (uint64_t *)aligned;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: gups MEGABYTES UPDATES [huge]\n");
        return 2;
    }
    size_t bytes = strtoull(argv[1], NULL, 10) << 20;
    uint64_t updates = strtoull(argv[2], NULL, 10);
    size_t words = bytes / sizeof(uint64_t);
    if (words == 0 || (words & (words - 1)) != 0) {
        fprintf(stderr, "gups: MEGABYTES has to be a power of two\n");
        return 2;
    }
    uint64_t *table = make_table(bytes, argc > 3 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    for (size_t i = 0; i < words; i += PAGE / sizeof(uint64_t))
        table[i] = i;

    size_t mask = words - 1;
    uint64_t x = UINT64_C(88172645463325252);
    pagewalk_roi_begin();
    for (uint64_t i = 0; i < updates; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        table[x & mask] ^= x;
    }
    pagewalk_roi_end();

    uint64_t sum = 0;
    for (size_t i = 0; i < words; i += PAGE / sizeof(uint64_t))
        sum += table[i];
    printf("%" PRIx64 "\n", sum);
    return 0;
}
