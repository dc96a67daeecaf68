/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A clock for a program whose execution is slowed down by simulation:
 *
 *     /lib64/ld-linux-x86-64.so.2 --preload ./slow_clock.so /usr/bin/redis-server ...
 *
 * CLOCK_MONOTONIC, from which an event loop takes when its timers are due, goes
 * 128 times slower from its first reading on. Simulation slows a server down by a
 * hundred times and more, so this is how often work that the clock starts meets
 * requests on a real machine. The other clocks go as they do. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#define SECOND 1000000000LL
#define SLOWER 128

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int64_t first;
    int64_t now, status;
    __asm__ volatile("syscall"
                     : "=a"(status)
                     : "a"((int64_t)SYS_clock_gettime), "D"((int64_t)clock), "S"(time)
                     : "rcx", "r11", "memory");
    if (status) {
        errno = (int)-status;
        return -1;
    }
    if (clock != CLOCK_MONOTONIC)
        return 0;
    now = time->tv_sec * SECOND + time->tv_nsec;
    if (!first)
        first = now;
    now = first + (now - first) / SLOWER;
    time->tv_sec = now / SECOND;
    time->tv_nsec = now % SECOND;
    return 0;
}
