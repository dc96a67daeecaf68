/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * lookaside: a cache of record addresses in front of any key-value index. C11 with the built-ins of
 * GCC and Clang, and C++ (lookaside.hpp is more convenient there). Link with liblookaside.a.
 *
 * The hot path is inline and works on the memory of the Rust crate's Table. Its rules hold here too:
 *
 * - A cached record stays at its address until it is invalidated.
 * - It is invalidated before it is moved or freed, while no thread may still read or insert it. A lock
 *   ensures this if lookups with their insertions hold it shared and removals hold it exclusively. With
 *   epochs, a record is marked dead, invalidated, invalidated again after a grace period, and freed
 *   after a second one.
 * - Of a hash, the lowest bits choose the set and the highest 16 are the tag: both must vary with the key.
 *
 * Null and misaligned tables are errors of the functions that return a status. Inline functions need a
 * table of lookaside_new. */
#ifndef LOOKASIDE_H
#define LOOKASIDE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum lookaside_status {
    LOOKASIDE_OK = 0,
    LOOKASIDE_NULL = 1,
    LOOKASIDE_MISALIGNED = 2,
    LOOKASIDE_NO_ROWS = 3,
    LOOKASIDE_NO_MEMORY = 4
};

enum { LOOKASIDE_WAYS = 8, LOOKASIDE_THREADS = 16, LOOKASIDE_BATCH = 32 };

/* A set: eight rows of a 16-bit tag above a 48-bit address. A row of 0 is empty. */
typedef struct lookaside_set {
    uint64_t rows[LOOKASIDE_WAYS];
} __attribute__((aligned(64))) lookaside_set;

/* The counts of one thread. */
typedef struct lookaside_slot {
    int32_t left; /* lookups until lookaside_step, negative if they bypass the table */
    uint32_t on;  /* lookups go through the table */
    uint64_t misses;
    uint8_t switch_state[240];
} __attribute__((aligned(128))) lookaside_slot;

typedef struct lookaside_table {
    lookaside_set *sets;
    uint64_t mask; /* number of sets less one */
    void *allocation;
    lookaside_slot slots[LOOKASIDE_THREADS + 1]; /* the first one is of threads without a number */
    /* Private fields follow. */
} lookaside_table;

/* Counts since the table was made. Exact while at most LOOKASIDE_THREADS threads use the table. */
typedef struct lookaside_counts {
    uint64_t admitted;     /* lookups through the table */
    uint64_t bypassed;     /* lookups without it */
    uint64_t misses;       /* lookups that found no row of their record */
    uint64_t switched_on;  /* trials that ended with the table on */
    uint64_t switched_off; /* trials that ended with the table off */
} lookaside_counts;

/* Makes an empty table of at least `rows` rows of 8 bytes: the next power of two. */
int lookaside_new(size_t rows, lookaside_table **out);
/* Frees a table that nothing uses any longer. Null is no error. */
int lookaside_free(lookaside_table *table);
/* Replaces the rows with at least `rows` empty ones. No other thread may use the table meanwhile. */
int lookaside_resize(lookaside_table *table, size_t rows);
/* Empties all rows. */
int lookaside_flush(lookaside_table *table);
/* 0 keeps the table on. Otherwise, as in a new table, it switches itself off where it does not pay. */
int lookaside_set_automatic(lookaside_table *table, int automatic);
int lookaside_statistics(lookaside_table *table, lookaside_counts *out);

/* For the inline functions. */
uint32_t lookaside_number_thread(void);
int lookaside_step(lookaside_table *table, uint32_t slot, uint32_t lookups);

/* The same as the inline functions, for languages that can't use them. Bad tables are misses. */
void *lookaside_find_call(lookaside_table *table, uint64_t hash, int (*verify)(void *context, void *at),
                          void *context);
int lookaside_insert_call(lookaside_table *table, uint64_t hash, void *at);
int lookaside_invalidate_call(lookaside_table *table, uint64_t hash);

/* The distance in bytes of this thread's slot from a table's first one: 0 before its first lookup. Weak, so that
 * all files share one. */
__attribute__((weak)) __thread size_t lookaside_distance;

static inline lookaside_slot *lookaside_own_slot(lookaside_table *table) {
    return (lookaside_slot *)((char *)table->slots + lookaside_distance);
}

__attribute__((cold, noinline, unused)) static void lookaside_number(void) {
    if (lookaside_distance == 0)
        lookaside_distance = lookaside_number_thread() * sizeof(lookaside_slot);
}

__attribute__((cold, noinline, unused)) static int lookaside_ended(lookaside_table *table, uint32_t lookups) {
    lookaside_number();
    return lookaside_step(table, (uint32_t)(lookaside_distance / sizeof(lookaside_slot)), lookups);
}

/* Counts `lookups` that are about to begin. 0: they are to bypass the table, which does not pay. A bypassed lookup
 * costs few instructions, because each of them delays the next lookup of an index in memory. */
__attribute__((always_inline)) static inline int lookaside_admit(lookaside_table *table, uint32_t lookups) {
    lookaside_slot *slot = lookaside_own_slot(table);
    int32_t left = __atomic_load_n(&slot->left, __ATOMIC_RELAXED);
    if (left < 0) {
        if (__builtin_expect((int64_t)left + lookups > 0, 0))
            return lookaside_ended(table, lookups);
        __atomic_store_n(&slot->left, left + (int32_t)lookups, __ATOMIC_RELAXED);
        return 0;
    }
    if (__builtin_expect((uint32_t)left < lookups, 0))
        return lookaside_ended(table, lookups);
    __atomic_store_n(&slot->left, left - (int32_t)lookups, __ATOMIC_RELAXED);
    return 1;
}

static inline void lookaside_count_misses(lookaside_table *table, uint64_t misses) {
    if (misses == 0)
        return;
    lookaside_number();
    lookaside_slot *slot = lookaside_own_slot(table);
    uint64_t sum = __atomic_load_n(&slot->misses, __ATOMIC_RELAXED) + misses;
    __atomic_store_n(&slot->misses, sum, __ATOMIC_RELAXED);
}

static inline lookaside_set *lookaside_set_of(const lookaside_table *table, uint64_t hash) {
    return &table->sets[hash & table->mask];
}

/* The tag of a hash. 0 becomes 1, so that no empty row matches. */
static inline uint64_t lookaside_tag(uint64_t hash) {
    uint64_t tag = hash >> 48;
    return tag + (tag == 0);
}

/* Bits of the rows with this tag. A hint: each row is loaded again and checked. The loads are inline
 * assembly, since neither language has vector loads that may race with atomic stores. */
static inline unsigned lookaside_matching(const lookaside_set *set, uint64_t tag) {
#if defined(__AVX2__)
    const __m256i *vectors = (const __m256i *)set, tags = _mm256_set1_epi16((short)tag);
    __m256i low, high;
    __asm__ volatile("vmovdqa %1, %0" : "=x"(low) : "m"(vectors[0]));
    __asm__ volatile("vmovdqa %1, %0" : "=x"(high) : "m"(vectors[1]));
    low = _mm256_cmpeq_epi16(low, tags), high = _mm256_cmpeq_epi16(high, tags);
    /* The sign of a 64-bit lane is that of its highest 16 bits: the tag's comparison. */
    return (unsigned)(_mm256_movemask_pd(_mm256_castsi256_pd(low)) |
                      _mm256_movemask_pd(_mm256_castsi256_pd(high)) << 4);
#elif defined(__SSE2__) && defined(__x86_64__)
    const __m128i *vectors = (const __m128i *)set, tags = _mm_set1_epi16((short)tag);
    unsigned bits = 0;
    for (int pair = 3; pair >= 0; pair--) {
        __m128i two;
        __asm__ volatile("movdqa %1, %0" : "=x"(two) : "m"(vectors[pair]));
        bits = bits << 2 | (unsigned)_mm_movemask_pd(_mm_castsi128_pd(_mm_cmpeq_epi16(two, tags)));
    }
    return bits;
#else
    unsigned bits = 0;
    for (int way = 0; way < LOOKASIDE_WAYS; way++)
        bits |= (unsigned)(__atomic_load_n(&set->rows[way], __ATOMIC_RELAXED) >> 48 == tag) << way;
    return bits;
#endif
}

/* The address in the lowest row of `matching` if its tag is `tag`, else null. */
static inline void *lookaside_address(const lookaside_set *set, unsigned matching, uint64_t tag) {
    uint64_t row = __atomic_load_n(&set->rows[__builtin_ctz(matching)], __ATOMIC_RELAXED);
    return row >> 48 == tag ? (void *)(uintptr_t)(row & UINT64_C(0xFFFFFFFFFFFF)) : NULL;
}

/* The address that was inserted with this hash and that `verify` accepts. Counts a miss if there is none. */
static inline void *lookaside_find(lookaside_table *table, uint64_t hash, int (*verify)(void *context, void *at),
                                   void *context) {
    const lookaside_set *set = lookaside_set_of(table, hash);
    uint64_t tag = lookaside_tag(hash);
    for (unsigned matching = lookaside_matching(set, tag); matching; matching &= matching - 1) {
        void *at = lookaside_address(set, matching, tag);
        if (at != NULL && verify(context, at))
            return at;
    }
    lookaside_count_misses(table, 1);
    return NULL;
}

/* Empties the rows from `way` on that have this tag. */
static inline void lookaside_empty(lookaside_set *set, uint64_t tag, int way) {
    for (; way < LOOKASIDE_WAYS; way++)
        if (__atomic_load_n(&set->rows[way], __ATOMIC_RELAXED) >> 48 == tag)
            __atomic_store_n(&set->rows[way], 0, __ATOMIC_RELAXED);
}

/* Mixes an integer key into a hash whose bits all depend on all bits of the key (SplitMix64). */
static inline uint64_t lookaside_mix(uint64_t key) {
    key = (key ^ key >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    key = (key ^ key >> 27) * UINT64_C(0x94D049BB133111EB);
    return key ^ key >> 31;
}

static inline uint64_t lookaside_fold(uint64_t a, uint64_t b) {
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The hash of a string for the table: a multiplication for every eight bytes. It resists no attacker,
 * and need not: keys with equal hashes are misses. */
static inline uint64_t lookaside_hash_bytes(const void *bytes, size_t length) {
    const uint64_t c1 = UINT64_C(0x9E3779B97F4A7C15), c2 = UINT64_C(0xD6E8FEB86659FD93);
    const unsigned char *at = (const unsigned char *)bytes;
    uint64_t sum = length * c1, word;
    for (; length > 8; at += 8, length -= 8) {
        memcpy(&word, at, 8);
        sum = lookaside_fold(sum ^ word, c2);
    }
    if (length == 8) {
        memcpy(&word, at, 8);
    } else {
        word = 0;
        memcpy(&word, at, length);
    }
    return lookaside_fold(lookaside_fold(sum ^ word, c2), c1);
}

/* Remembers the address. 0, and nothing is remembered, if it is null or above 48 bits. Replaces a row
 * with the same tag, else an empty one, else one that all bits of the set's rows choose. */
static inline int lookaside_insert(lookaside_table *table, uint64_t hash, void *at) {
    lookaside_set *set = lookaside_set_of(table, hash);
    uint64_t tag = lookaside_tag(hash), address = (uintptr_t)at, row = tag << 48 | address, bits = row;
    int empty = -1;
    if (address == 0 || address >> 48)
        return 0;
    for (int way = 0; way < LOOKASIDE_WAYS; way++) {
        uint64_t old = __atomic_load_n(&set->rows[way], __ATOMIC_RELAXED);
        if (old >> 48 == tag) {
            __atomic_store_n(&set->rows[way], row, __ATOMIC_RELAXED);
            lookaside_empty(set, tag, way + 1);
            return 1;
        }
        if (old == 0 && empty < 0)
            empty = way;
        bits = (bits << 7 | bits >> 57) ^ old;
    }
    int victim = empty >= 0 ? empty : (int)(lookaside_mix(bits) >> 61);
    __atomic_store_n(&set->rows[victim], row, __ATOMIC_RELAXED);
    return 1;
}

/* Empties every row of this hash. Required before a record is moved or freed. */
static inline void lookaside_invalidate(lookaside_table *table, uint64_t hash) {
    lookaside_empty(lookaside_set_of(table, hash), lookaside_tag(hash), 0);
}

static inline void lookaside_prefetch(const lookaside_table *table, uint64_t hash) {
    __builtin_prefetch(lookaside_set_of(table, hash));
}

#ifdef __cplusplus
}
static_assert(sizeof(lookaside_slot) == 256, "a slot of the Rust crate");
#else
_Static_assert(sizeof(lookaside_slot) == 256, "a slot of the Rust crate");
#endif

#endif
