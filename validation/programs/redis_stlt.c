/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Redis with STLT: look-ups of keys ask the machine's table first (`make redis-stlt`). Nothing
 * of Redis is changed; the linker sends the calls of the functions below here (--wrap).
 *
 * A row leads to the entry of a key in the dictionary of a database, which stays where it is
 * while the key exists: rehashing links it into another bucket, and another value is written
 * into it. Entries are freed by what is wrapped besides dictFind, and by nothing else of
 * Debian's Redis 7.0; their rows are emptied before.
 *
 * With PAGEWALK_STLT_ROWS the table has so many rows, in software if no machine answers.
 * Without, it is the machine's, and where there is none Redis is as it always was. */
#include "server.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "pagewalk.h"

#ifdef HAVE_DEFRAG
#error "active defragmentation moves entries"
#endif

/* Dictionaries of databases that have rows. Each has a number, the last four bits of its
 * integers, since they have the same keys (STLT, section III-F). One that FLUSHALL ASYNC
 * leaves to the background has its number and its rows until it is released there. */
static dict *numbered[16];
static int on;

__attribute__((constructor)) static void begin(void) {
    const char *rows = getenv("PAGEWALK_STLT_ROWS");
    if (rows == NULL)
        pagewalk_load_va(0);
    on = rows != NULL ? pagewalk_stlt_alloc(strtoull(rows, NULL, 0)) : pagewalk_answers();
}

/* The number of a dictionary; -1: it has none, and is not to have one, or all are taken. */
static int number_of(dict *d, int take) {
    int i, unused = -1;
    if (!on || d->type != &dbDictType)
        return -1;
    for (i = 0; i < 16; i++) {
        dict *one = __atomic_load_n(&numbered[i], __ATOMIC_RELAXED);
        if (one == d)
            return i;
        if (one == NULL && unused < 0)
            unused = i;
    }
    if (take && unused >= 0)
        __atomic_store_n(&numbered[unused], d, __ATOMIC_RELAXED);
    return take ? unused : -1;
}

static uint64_t integer_of(int number, const void *key) {
    return (XXH3_64bits(key, sdslen((sds)key)) & ~UINT64_C(15)) | number;
}

dictEntry *__real_dictFind(dict *d, const void *key);
dictEntry *__wrap_dictFind(dict *d, const void *key) {
    int number = number_of(d, 1);
    if (number < 0)
        return __real_dictFind(d, key);
    uint64_t integer = integer_of(number, key);
    dictEntry *entry = pagewalk_load_va(integer);
    if (entry != NULL && sdscmp(entry->key, (sds)key) == 0)
        return entry;
    if ((entry = __real_dictFind(d, key)) != NULL)
        pagewalk_insert_va(integer, entry);
    return entry;
}

/* The entry of this key is about to be freed. */
static void erase(dict *d, const void *key) {
    int number = number_of(d, 0);
    if (number >= 0)
        pagewalk_erase_va(integer_of(number, key));
}

/* All entries are: nobody knows their integers, so the whole table is emptied. */
static void forget(dict *d) {
    int number = number_of(d, 0);
    if (number < 0)
        return;
    on = pagewalk_stlt_resize(0);
    __atomic_store_n(&numbered[number], NULL, __ATOMIC_RELEASE);
}

dictEntry *__real_dictUnlink(dict *d, const void *key);
dictEntry *__wrap_dictUnlink(dict *d, const void *key) {
    return erase(d, key), __real_dictUnlink(d, key);
}
int __real_dictDelete(dict *d, const void *key);
int __wrap_dictDelete(dict *d, const void *key) {
    return erase(d, key), __real_dictDelete(d, key);
}
void __real_dictEmpty(dict *d, void(callback)(dict *));
void __wrap_dictEmpty(dict *d, void(callback)(dict *)) { forget(d), __real_dictEmpty(d, callback); }
void __real_dictRelease(dict *d);
void __wrap_dictRelease(dict *d) { forget(d), __real_dictRelease(d); }
