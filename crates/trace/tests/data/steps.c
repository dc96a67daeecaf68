/* The program in steps.pwt: cc -O1 -nostdlib -static -fno-stack-protector -I ../../../../include steps.c */
#include "pagewalk.h"

static long call(long n, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

void _start(void)
{
    /* mmap: 64 KB, anonymous. */
    volatile unsigned long *table = (void *)call(9, 0, 65536, 3, 0x22, -1, 0);
    unsigned long x = 88172645463325252ul;
    pagewalk_roi_begin();
    for (int i = 0; i < 3000; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        table[x & 8191] ^= x;
        if (x & 64)
            table[i & 255] += 1;
    }
    pagewalk_roi_end();
    void *to = (void *)table, *from = (void *)(table + 4096);
    unsigned long count = 100;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
    call(11, (long)table, 65536, 0, 0, 0, 0);
    call(231, 7, 0, 0, 0, 0, 0);
    __builtin_unreachable();
}
