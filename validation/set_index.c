// Do the sets of a cache depend on address bits above the index? Nanoseconds of a dependent load over
// one line in each of N pages, in random order: the same line of all pages, and any line of each.
// Pages and so TLBs are the same, only the cache's sets differ. Without a hash, the same line of all
// pages reaches a 64th of the sets. Each number is the least of some repeats.
//
//     gcc -O2 -o set_index validation/set_index.c && taskset -c 1 ./set_index [REPEATS]
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static const size_t BYTES = 3ul << 30, HUGE_PAGE = 2 << 20;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static uint64_t state = 88172645463325252ul;

static uint64_t draw(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static double chase(char *base, size_t distance, size_t pages, int any_line, int repeats) {
    void **line[pages];
    for (size_t i = 0; i < pages; i++)
        line[i] = (void **)(base + i * distance + (any_line ? draw() % 64 * 64 : 0));
    for (size_t i = pages - 1; i > 0; i--) {
        size_t j = draw() % (i + 1);
        void **moved = line[i];
        line[i] = line[j];
        line[j] = moved;
    }
    for (size_t i = 0; i < pages; i++) *line[i] = line[(i + 1) % pages];
    void *volatile *at = (void *volatile *)line[0];
    long loads = pages * 20 > 100000 ? pages * 20 : 100000;
    double least = 1e9;
    for (int r = 0; r <= repeats; r++) {
        double begin = now();
        for (long i = 0; i < loads; i++) at = *at;
        double each = (now() - begin) / loads;
        if (r > 0 && each < least) least = each; // the first one brings the lines in
    }
    return least;
}

int main(int argc, char **argv) {
    int repeats = argc > 1 ? atoi(argv[1]) : 11;
    char *base = mmap(0, BYTES + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return perror("mmap"), 1;
    base = (char *)(((uintptr_t)base + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (madvise(base, BYTES, MADV_HUGEPAGE)) return perror("madvise"), 1;
    for (size_t at = 0; at < BYTES; at += 4096) base[at] = 1;
    puts("distance\tpages\tsame line\tany line");
    for (size_t distance = 4096; distance <= 1 << 20; distance <<= 8)
        for (size_t pages = 64; pages <= 3072; pages = pages & (pages - 1) ? pages / 3 * 4 : pages / 2 * 3)
            printf("%zu\t%zu\t%.2f\t%.2f\n", distance, pages, chase(base, distance, pages, 0, repeats),
                   chase(base, distance, pages, 1, repeats));
}
