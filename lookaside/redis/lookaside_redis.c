/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Redis 7.0 with lookaside: lookups of keys in the dictionaries of databases. No file of Redis is changed.
 * The linker sends the calls of the functions below here (--wrap); all of them cross files.
 *
 * A row leads to the entry of a key. An entry stays where it is while the key exists: rehashing links it
 * into another bucket, and another value is written into it. These functions free or move entries:
 *
 * - dictUnlink, dictDelete: DEL, UNLINK, expiry, eviction, RENAME, MOVE. Their row is emptied before.
 * - dictEmpty, dictRelease, emptyDbAsync: FLUSHALL, FLUSHDB, a replica's new data set, DEBUG RELOAD. The
 *   table is emptied before, for FLUSHALL ASYNC before the background thread gets the dictionary.
 * - dictScan with a function for buckets: active defragmentation. The rows of a bucket are emptied before.
 *
 * SWAPDB exchanges dictionaries, and rows belong to dictionaries. All lookups of keys hold Redis' global
 * lock, also those of modules' threads. A child that saves the data set has its own copy of the table.
 *
 * LOOKASIDE_ROWS      rows of 8 bytes, by default 2^20; 0: Redis as it always was
 * LOOKASIDE_AUTOMATIC 0: the table stays on where it does not pay
 * LOOKASIDE_CHECK     1: every hit is compared with the dictionary (slow) */
#include "server.h"

#include "lookaside.h"

/* Dictionaries with rows. The number of one is the lowest four bits of its tags, since dictionaries have
 * equal keys (STLT, section III-F). Lookups in more dictionaries bypass the table. */
static dict *numbered[16];
static lookaside_table *table;
static int check_hits, has_rows;

static void log_counts(int status, void *unused) {
    lookaside_counts counts;
    (void)unused;
    /* The last line of the log of a server that fails says why. */
    if (status != 0)
        return;
    if (lookaside_statistics(table, &counts) == LOOKASIDE_OK)
        serverLog(LL_NOTICE, "lookaside: %llu lookups, %llu misses, %llu bypassed, switched on %llu, off %llu times",
                  (unsigned long long)counts.admitted, (unsigned long long)counts.misses,
                  (unsigned long long)counts.bypassed, (unsigned long long)counts.switched_on,
                  (unsigned long long)counts.switched_off);
}

__attribute__((constructor)) static void begin(void) {
    const char *rows = getenv("LOOKASIDE_ROWS"), *automatic = getenv("LOOKASIDE_AUTOMATIC");
    const char *check = getenv("LOOKASIDE_CHECK");
    size_t number = rows != NULL ? strtoull(rows, NULL, 0) : (size_t)1 << 20;
    if (number == 0)
        return;
    if (lookaside_new(number, &table) != LOOKASIDE_OK) {
        fprintf(stderr, "lookaside: no memory for %zu rows: Redis runs without\n", number);
        return;
    }
    if (automatic != NULL && strcmp(automatic, "0") == 0)
        lookaside_set_automatic(table, 0);
    check_hits = check != NULL && strcmp(check, "1") == 0;
    on_exit(log_counts, NULL);
}

/* The number of a database's dictionary, or -1. With `take`, it gets an unused one. */
static int number_of(dict *d, int take) {
    int unused = -1;
    if (table == NULL || d->type != &dbDictType)
        return -1;
    for (int i = 0; i < 16; i++) {
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

static uint64_t hash_of(int number, const void *key) {
    uint64_t hash = lookaside_hash_bytes(key, sdslen((sds)key));
    return (hash & ~(UINT64_C(15) << 48)) | (uint64_t)number << 48;
}

static int same_key(void *key, void *at) { return sdscmp(((dictEntry *)at)->key, (sds)key) == 0; }

dictEntry *__real_dictFind(dict *d, const void *key);
dictEntry *__wrap_dictFind(dict *d, const void *key) {
    int number = dictSize(d) != 0 ? number_of(d, 1) : -1;
    if (number < 0 || !lookaside_admit(table, 1))
        return __real_dictFind(d, key);
    uint64_t hash = hash_of(number, key);
    dictEntry *entry = lookaside_find(table, hash, same_key, (void *)key);
    if (entry != NULL) {
        if (check_hits && entry != __real_dictFind(d, key))
            serverPanic("lookaside: a hit is not the dictionary's entry");
        if (dictIsRehashing(d) && d->pauserehash == 0)
            dictRehash(d, 1); /* as each lookup in the dictionary does */
        return entry;
    }
    entry = __real_dictFind(d, key);
    /* A row written while a child saves the data set would copy a page. */
    if (entry != NULL && !hasActiveChildProcess())
        has_rows = 1, lookaside_insert(table, hash, entry);
    return entry;
}

/* The entry of this key is about to be freed or moved. */
static void forget_key(dict *d, const void *key) {
    int number = number_of(d, 0);
    if (number >= 0)
        lookaside_invalidate(table, hash_of(number, key));
}

/* All entries of a dictionary are about to be freed. Their hashes would be as slow as the whole table.
 * A background thread gets dictionaries that have no number any longer. */
static void forget_all(dict *d) {
    int number = number_of(d, 0);
    if (number < 0)
        return;
    if (has_rows)
        lookaside_flush(table);
    has_rows = 0;
    __atomic_store_n(&numbered[number], NULL, __ATOMIC_RELAXED);
}

dictEntry *__real_dictUnlink(dict *d, const void *key);
dictEntry *__wrap_dictUnlink(dict *d, const void *key) {
    forget_key(d, key);
    return __real_dictUnlink(d, key);
}

int __real_dictDelete(dict *d, const void *key);
int __wrap_dictDelete(dict *d, const void *key) {
    forget_key(d, key);
    return __real_dictDelete(d, key);
}

void __real_dictEmpty(dict *d, void(callback)(dict *));
void __wrap_dictEmpty(dict *d, void(callback)(dict *)) {
    forget_all(d);
    __real_dictEmpty(d, callback);
    forget_all(d); /* of what the callback looked up */
}

void __real_dictRelease(dict *d);
void __wrap_dictRelease(dict *d) {
    forget_all(d);
    __real_dictRelease(d);
}

void __real_emptyDbAsync(redisDb *db);
void __wrap_emptyDbAsync(redisDb *db) {
    forget_all(db->dict);
    __real_emptyDbAsync(db);
}

/* The scan whose buckets forget_bucket() gets: scans of two dictionaries may be nested. */
static __thread dictScanBucketFunction *bucket_function;

static void forget_bucket(dict *d, dictEntry **bucket) {
    for (dictEntry *entry = *bucket; entry != NULL; entry = entry->next)
        forget_key(d, entry->key);
    bucket_function(d, bucket);
}

unsigned long __real_dictScan(dict *d, unsigned long v, dictScanFunction *fn, dictScanBucketFunction *bucketfn,
                              void *privdata);
unsigned long __wrap_dictScan(dict *d, unsigned long v, dictScanFunction *fn, dictScanBucketFunction *bucketfn,
                              void *privdata) {
    if (bucketfn == NULL || number_of(d, 0) < 0)
        return __real_dictScan(d, v, fn, bucketfn, privdata);
    dictScanBucketFunction *outer = bucket_function;
    bucket_function = bucketfn;
    v = __real_dictScan(d, v, fn, forget_bucket, privdata);
    bucket_function = outer;
    return v;
}
