/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Marks the region of interest of a program that Pagewalk runs:
 *
 *     #include "pagewalk.h"
 *     pagewalk_roi_begin();
 *     ... what is to be measured ...
 *     pagewalk_roi_end();
 *
 * Then `pagewalk run --roi -- ./program` measures only what lies between. Each
 * mark is one no-operation instruction with a distinctive displacement, so the
 * program runs unchanged, and at full speed, without Pagewalk. On processors
 * other than x86-64 the marks are empty. For C and C++. */
#ifndef PAGEWALK_H
#define PAGEWALK_H

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
/* nopl 0x53494d01(%rax) and nopl 0x53494d02(%rax), as bytes so that every
 * assembler makes the same of them. The clobber keeps the compiler from moving
 * memory accesses over the mark. */
static inline void pagewalk_roi_begin(void) {
    __asm__ __volatile__(".byte 0x0f, 0x1f, 0x80, 0x01, 0x4d, 0x49, 0x53" ::: "memory");
}
static inline void pagewalk_roi_end(void) {
    __asm__ __volatile__(".byte 0x0f, 0x1f, 0x80, 0x02, 0x4d, 0x49, 0x53" ::: "memory");
}
#else
static inline void pagewalk_roi_begin(void) {}
static inline void pagewalk_roi_end(void) {}
#endif

#endif
