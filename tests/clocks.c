/* Programs that measure themselves: clocks WHAT. A region ends the program, so they print within it. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "pagewalk.h"

static double at(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* As STREAM: copy and triad over arrays that no cache holds. */
static void stream(void) {
    enum { N = 1 << 19 };
    double *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b), *c = malloc(N * sizeof *c);
    for (int i = 0; i < N; i++) a[i] = 1, b[i] = 2, c[i] = 0;
    pagewalk_roi_begin();
    double start = at(CLOCK_MONOTONIC);
    for (int i = 0; i < N; i++) c[i] = a[i];
    for (int i = 0; i < N; i++) a[i] = b[i] + 3 * c[i];
    double end = at(CLOCK_MONOTONIC);
    printf("%.9f %g\n", end - start, a[N / 2]);
    fflush(stdout);
    pagewalk_roi_end();
}

/* As lat_mem_rd of lmbench: each load's address comes from the load before. */
static void chase(void) {
    enum { N = 1 << 15, STEPS = 200000 };
    struct line { struct line *next; char rest[120]; } *lines = malloc(N * sizeof *lines);
    uint32_t *order = malloc(N * sizeof *order), seed = 1;
    for (uint32_t i = 0; i < N; i++) order[i] = i;
    for (uint32_t i = N - 1; i > 0; i--) {
        seed = seed * 1664525 + 1013904223;
        uint32_t j = (uint64_t)seed * (i + 1) >> 32, other = order[i];
        order[i] = order[j], order[j] = other;
    }
    for (uint32_t i = 0; i < N; i++) lines[order[i]].next = &lines[order[(i + 1) % N]];
    struct line *p = lines;
    pagewalk_roi_begin();
    uint64_t start = __rdtsc();
    for (int i = 0; i < STEPS; i++) p = p->next;
    unsigned core;
    uint64_t end = __rdtscp(&core);
    printf("%llu %d\n", (unsigned long long)(end - start), p == NULL);
    fflush(stdout);
    pagewalk_roi_end();
}

/* All clocks agree on the time of a loop. */
static void all(void) {
    struct timeval t0, t1;
    struct rusage r0, r1;
    struct tms m;
    double real = at(CLOCK_REALTIME), mono = at(CLOCK_MONOTONIC), raw = at(CLOCK_MONOTONIC_RAW);
    double boot = at(CLOCK_BOOTTIME), process = at(CLOCK_PROCESS_CPUTIME_ID);
    double thread = at(CLOCK_THREAD_CPUTIME_ID);
    gettimeofday(&t0, NULL);
    getrusage(RUSAGE_SELF, &r0);
    clock_t ticks = times(&m);
    uint64_t cycles = __rdtsc();
    for (volatile int i = 0; i < 3000000; i++) {}
    cycles = __rdtsc() - cycles;
    ticks = times(&m) - ticks;
    getrusage(RUSAGE_SELF, &r1);
    gettimeofday(&t1, NULL);
    thread = at(CLOCK_THREAD_CPUTIME_ID) - thread;
    process = at(CLOCK_PROCESS_CPUTIME_ID) - process;
    boot = at(CLOCK_BOOTTIME) - boot;
    raw = at(CLOCK_MONOTONIC_RAW) - raw;
    mono = at(CLOCK_MONOTONIC) - mono;
    real = at(CLOCK_REALTIME) - real;
    printf("%llu %ld %ld %.9f %.9f %.9f %.9f %.9f %.9f %.9f %.9f\n", (unsigned long long)cycles,
           (long)ticks, (long)time(NULL), real, mono, raw, boot, process, thread,
           t1.tv_sec - t0.tv_sec + (t1.tv_usec - t0.tv_usec) * 1e-6,
           r1.ru_utime.tv_sec - r0.ru_utime.tv_sec
               + (r1.ru_utime.tv_usec - r0.ru_utime.tv_usec) * 1e-6);
}

/* Waits of each kind, in simulated milliseconds, and the processor's time meanwhile. */
static void waits(void) {
    static const struct timespec quarter = {250, 250000000};
    double start = at(CLOCK_MONOTONIC), process = at(CLOCK_PROCESS_CPUTIME_ID);
    nanosleep(&quarter, NULL);
    double slept = at(CLOCK_MONOTONIC);
    struct timespec until = {(time_t)slept + 3600, 0};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    double reached = at(CLOCK_MONOTONIC) - until.tv_sec;
    double before = at(CLOCK_MONOTONIC);
    poll(NULL, 0, 20);
    double polled = at(CLOCK_MONOTONIC);
    sem_t never;
    sem_init(&never, 0, 0);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 20000000;
    if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
    int failed = sem_timedwait(&never, &until);
    double waited = at(CLOCK_MONOTONIC);
    /* Spins until five microseconds are over. */
    while (at(CLOCK_MONOTONIC) < waited + 5e-6) {}
    double spun = at(CLOCK_MONOTONIC);
    printf("%.6f %.6f %.6f %.6f %d %.9f %.6f %ld\n", slept - start, reached, polled - before,
           waited - polled, failed == -1 && errno == ETIMEDOUT, spun - waited,
           at(CLOCK_PROCESS_CPUTIME_ID) - process, quarter.tv_sec);
}

static volatile int stop;
static volatile long rounds;

static void *spin(void *none) {
    while (!stop) rounds++;
    return none;
}

/* A thread works while another one sleeps; then a child and its parent ask. */
static void threads(void) {
    pthread_t other;
    pthread_create(&other, NULL, spin, NULL);
    double start = at(CLOCK_MONOTONIC);
    usleep(2000);
    stop = 1;
    pthread_join(other, NULL);
    double took = at(CLOCK_MONOTONIC) - start;
    fflush(stdout);
    pid_t child = fork();
    double then = at(CLOCK_MONOTONIC);
    if (child == 0) {
        double now = at(CLOCK_MONOTONIC);
        printf("%d\n", now >= then && now < then + 1);
        return;
    }
    waitpid(child, NULL, 0);
    printf("%.6f %ld %d\n", took, rounds, at(CLOCK_MONOTONIC) >= then);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "stream")) stream();
    if (!strcmp(what, "chase")) chase();
    if (!strcmp(what, "all")) all();
    if (!strcmp(what, "waits")) waits();
    if (!strcmp(what, "threads")) threads();
    return 0;
}
