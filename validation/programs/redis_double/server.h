/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * What redis_stlt.c uses of Redis, in small: a dictionary that is a list, whose entries lie in
 * pages of their own that are unmapped when they are freed, so that a row which leads to one
 * that is gone is the end of the program. For the test of redis_stlt.c where there is no source
 * of Redis; names and types are Redis's. */
#ifndef REDIS_DOUBLE_H
#define REDIS_DOUBLE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef char *sds;
static inline size_t sdslen(const sds text) { return strlen(text); }
static inline int sdscmp(const sds a, const sds b) { return strcmp(a, b); }

typedef struct dictType {
    const char *name;
} dictType;

typedef struct dictEntry {
    void *key;
    long value;
    struct dictEntry *next;
} dictEntry;

typedef struct dict {
    dictType *type;
    dictEntry *first;
} dict;

extern dictType dbDictType, otherDictType;
/* Look-ups that went through the list. */
extern long searched;

dict *dictCreate(dictType *type);
void dictAdd(dict *d, sds key, long value);
dictEntry *dictFind(dict *d, const void *key);
dictEntry *dictUnlink(dict *d, const void *key);
void dictFreeUnlinkedEntry(dict *d, dictEntry *entry);
int dictDelete(dict *d, const void *key);
/* As dictDelete, by a name that nobody knows. */
int dictRemove(dict *d, const void *key);
void dictEmpty(dict *d, void(callback)(dict *));
void dictRelease(dict *d);

#endif
