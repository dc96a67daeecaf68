/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The table of pagewalk.h in software, for where no simulated machine answers: a program
 * that has called pagewalk_stlt_alloc() is served from it. Include pagewalk.h instead.
 *
 * STLT's rules (address-centric acceleration of key-value stores, sections III-B and III-E)
 * in the program's own memory: sets of four rows; the low 12 bits of the integer are the
 * row's tag, the next ones choose the set; a counter of 4 bits goes up with probability
 * 2^-counter and wraps; an insertion takes the row that matches, else an empty one, else one
 * with the smallest counter. A row is one word of 8 bytes: 4 bits of counter, 12 of tag, 48 of
 * address. There is no page-table entry to keep, so it has half of the machine's 16 bytes.
 *
 * Any thread may call any function at any time: a row is read and written as one word, and
 * what was erased does not come back. A table that was freed or resized keeps its addresses,
 * without memory behind them, for threads that are still in it. */
#ifndef PAGEWALK_STLT_H
#define PAGEWALK_STLT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

/* Rows of pagewalk_stlt_alloc(0): 8 MiB. */
#define PAGEWALK_STLT_ROWS ((uint64_t)1 << 20)

#define PAGEWALK_STLT_ADDRESS (((uint64_t)1 << 48) - 1)
#define PAGEWALK_STLT_PAGE 4096
/* MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, of which strict C knows the first only. */
#define PAGEWALK_STLT_MAP (0x02 | 0x20 | 0x4000)

/* A page, behind which the rows lie, so that their memory can be given back alone. */
struct pagewalk_stlt {
    uint64_t rows;
    uint64_t unused[PAGEWALK_STLT_PAGE / 8 - 1];
};

/* One of a program, also of several files that include this. NULL: there is none. */
__attribute__((weak)) struct pagewalk_stlt *pagewalk_stlt_table;

/* Marsaglia's xorshift64. */
static __thread uint64_t pagewalk_stlt_random = UINT64_C(88172645463325252);

static inline struct pagewalk_stlt *pagewalk_stlt_now(void) {
    return __atomic_load_n(&pagewalk_stlt_table, __ATOMIC_ACQUIRE);
}

/* The set of an integer. */
static inline uint64_t *pagewalk_stlt_set(struct pagewalk_stlt *table, uint64_t integer) {
    return (uint64_t *)(table + 1) + 4 * (integer >> 12 & (table->rows / 4 - 1));
}

static inline int pagewalk_stlt_matches(uint64_t word, uint64_t integer) {
    return (word & PAGEWALK_STLT_ADDRESS) != 0 && ((word >> 48 ^ integer) & 0xfff) == 0;
}

static inline uint64_t pagewalk_stlt_load(struct pagewalk_stlt *table, uint64_t integer) {
    uint64_t *set = pagewalk_stlt_set(table, integer), word, random = pagewalk_stlt_random;
    int i;
    for (i = 0; i < 4; i++) {
        word = __atomic_load_n(&set[i], __ATOMIC_ACQUIRE);
        if (!pagewalk_stlt_matches(word, integer))
            continue;
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        pagewalk_stlt_random = random;
        if ((random & ((UINT64_C(1) << (word >> 60)) - 1)) == 0) {
            /* Only if the row is still what it was. */
            uint64_t was = word;
            __atomic_compare_exchange_n(&set[i], &was, word + (UINT64_C(1) << 60), 0,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        }
        return word & PAGEWALK_STLT_ADDRESS;
    }
    return 0;
}

/* All rows that match: threads that insert the same integer may have made two. */
static inline void pagewalk_stlt_erase(struct pagewalk_stlt *table, uint64_t integer) {
    uint64_t *set = pagewalk_stlt_set(table, integer), word;
    int i;
    for (i = 0; i < 4; i++) {
        word = __atomic_load_n(&set[i], __ATOMIC_RELAXED);
        while (pagewalk_stlt_matches(word, integer) &&
               !__atomic_compare_exchange_n(&set[i], &word, 0, 0, __ATOMIC_ACQ_REL,
                                            __ATOMIC_RELAXED))
            ;
    }
}

static inline uint64_t pagewalk_stlt_insert(struct pagewalk_stlt *table, uint64_t integer,
                                            uint64_t va) {
    uint64_t *set = pagewalk_stlt_set(table, integer), word, least = UINT64_MAX;
    int i, to = 0;
    if (va == 0)
        pagewalk_stlt_erase(table, integer);
    if (va == 0 || (va & ~PAGEWALK_STLT_ADDRESS) != 0)
        return 0;
    for (i = 0; i < 4; i++) {
        word = __atomic_load_n(&set[i], __ATOMIC_RELAXED);
        if (pagewalk_stlt_matches(word, integer)) {
            to = i;
            break;
        }
        /* An empty row comes before all others. */
        word = (word & PAGEWALK_STLT_ADDRESS) == 0 ? 0 : 1 + (word >> 60);
        if (word < least) {
            least = word;
            to = i;
        }
    }
    __atomic_store_n(&set[to], (integer & 0xfff) << 48 | va, __ATOMIC_RELEASE);
    return 1;
}

/* A table of so many rows; NULL if no table has so many, or there is no memory. */
static inline struct pagewalk_stlt *pagewalk_stlt_new(uint64_t rows) {
    uint64_t bytes = PAGEWALK_STLT_PAGE + 8 * rows;
    struct pagewalk_stlt *table;
    if (rows < 256 || rows > (uint64_t)1 << 26 || (rows & (rows - 1)) != 0)
        return NULL;
    table = (struct pagewalk_stlt *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, PAGEWALK_STLT_MAP,
                                         -1, 0);
    if ((void *)table == MAP_FAILED)
        return NULL;
    table->rows = rows;
    return table;
}

/* Empties all rows and gives their memory back; who is still in them finds nothing. */
static inline uint64_t pagewalk_stlt_drop(struct pagewalk_stlt *table) {
    return mmap(table + 1, 8 * table->rows, PROT_READ | PROT_WRITE,
                PAGEWALK_STLT_MAP | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* The three system calls. */
static inline uint64_t pagewalk_stlt_make(uint64_t rows) {
    struct pagewalk_stlt *none = NULL, *table = pagewalk_stlt_new(rows ? rows : PAGEWALK_STLT_ROWS);
    if (table == NULL)
        return 0;
    if (__atomic_compare_exchange_n(&pagewalk_stlt_table, &none, table, 0, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED))
        return 1;
    /* There is one already. */
    munmap(table, PAGEWALK_STLT_PAGE + 8 * table->rows);
    return 0;
}

static inline uint64_t pagewalk_stlt_change(uint64_t rows) {
    struct pagewalk_stlt *old = pagewalk_stlt_now(), *table;
    if (old == NULL)
        return 0;
    if (rows == 0 || rows == old->rows)
        return pagewalk_stlt_drop(old);
    table = pagewalk_stlt_new(rows);
    if (table == NULL)
        return 0;
    old = __atomic_exchange_n(&pagewalk_stlt_table, table, __ATOMIC_ACQ_REL);
    if (old != NULL)
        pagewalk_stlt_drop(old);
    return 1;
}

static inline uint64_t pagewalk_stlt_end(void) {
    struct pagewalk_stlt *old = __atomic_exchange_n(&pagewalk_stlt_table, NULL, __ATOMIC_ACQ_REL);
    return old != NULL && pagewalk_stlt_drop(old);
}

#endif
