/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Random operations on two databases and a dictionary that is none, whose entries go without
 * anybody being told, with the same keys; each answer is compared with what was written. Prints look-ups, those that went through the
 * list, and answers that were wrong. */
#include "server.h"

#include <stdio.h>

enum { KEYS = 300, DICTS = 3 };

static dict *dicts[DICTS];
static long values[DICTS][KEYS], lookups, wrong;

static void look_up(int n, int k) {
    char key[16];
    snprintf(key, sizeof key, "key:%d", k);
    dictEntry *entry = dictFind(dicts[n], key);
    lookups++;
    wrong += entry ? entry->value != values[n][k] || strcmp(entry->key, key) != 0 : values[n][k] != 0;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100000, round;
    uint64_t random = 88172645463325252u;
    int n, k;
    for (n = 0; n < DICTS; n++)
        dicts[n] = dictCreate(n == DICTS - 1 ? &otherDictType : &dbDictType);
    for (round = 1; round <= rounds; round++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        char key[16];
        n = random >> 8 & 0xff, k = random >> 16 & 0xffff;
        snprintf(key, sizeof key, "key:%d", k %= KEYS);
        n %= DICTS;
        if (random % 2000 == 1) {
            if (random >> 40 & 1) {
                dictEmpty(dicts[n], NULL);
            } else {
                /* A new one is made at once, as by FLUSHALL ASYNC. */
                dict *old = dicts[n];
                dicts[n] = dictCreate(old->type);
                dictRelease(old);
            }
            memset(values[n], 0, sizeof values[n]);
        } else if (random % 20 == 0 && values[n][k]) {
            if (n == DICTS - 1) {
                dictRemove(dicts[n], key);
            } else if (random >> 40 & 1) {
                dictDelete(dicts[n], key);
            } else {
                dictEntry *entry = dictUnlink(dicts[n], key);
                dictFreeUnlinkedEntry(dicts[n], entry);
            }
            values[n][k] = 0;
        } else if (!values[n][k] && random % 3 == 0) {
            dictAdd(dicts[n], key, values[n][k] = round);
        } else if (random % 7 == 0 && values[n][k]) {
            dictFind(dicts[n], key)->value = values[n][k] = round;
            lookups++;
        } else {
            look_up(n, k);
        }
    }
    for (n = 0; n < DICTS; n++)
        for (k = 0; k < KEYS; k++)
            look_up(n, k);
    printf("%ld %ld %ld\n", lookups, searched, wrong);
    return wrong != 0;
}
