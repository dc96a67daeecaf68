/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "server.h"

#include <sys/mman.h>

dictType dbDictType = {"database"}, otherDictType = {"other"};
long searched;

/* One that was released, which every second new one takes up again. */
static dict *released;

dict *dictCreate(dictType *type) {
    static int made;
    dict *d = released != NULL && made++ % 2 ? released : malloc(sizeof *d);
    released = NULL;
    d->type = type;
    d->first = NULL;
    return d;
}

void dictAdd(dict *d, sds key, long value) {
    dictEntry *entry = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    entry->key = strcpy((char *)(entry + 1), key);
    entry->value = value;
    entry->next = d->first;
    d->first = entry;
}

static dictEntry **place(dict *d, const void *key) {
    dictEntry **at = &d->first;
    while (*at != NULL && strcmp((*at)->key, key) != 0)
        at = &(*at)->next;
    return at;
}

dictEntry *dictFind(dict *d, const void *key) {
    searched++;
    return *place(d, key);
}

dictEntry *dictUnlink(dict *d, const void *key) {
    dictEntry **at = place(d, key), *entry = *at;
    if (entry != NULL)
        *at = entry->next;
    return entry;
}

void dictFreeUnlinkedEntry(dict *d, dictEntry *entry) {
    (void)d;
    munmap(entry, 4096);
}

int dictDelete(dict *d, const void *key) { return dictRemove(d, key); }

int dictRemove(dict *d, const void *key) {
    dictEntry **at = place(d, key), *entry = *at;
    if (entry == NULL)
        return 1;
    *at = entry->next;
    munmap(entry, 4096);
    return 0;
}

static void clear(dict *d) {
    while (d->first != NULL) {
        dictEntry *entry = d->first;
        d->first = entry->next;
        munmap(entry, 4096);
    }
}

void dictEmpty(dict *d, void(callback)(dict *)) {
    if (callback)
        callback(d);
    clear(d);
}

void dictRelease(dict *d) {
    clear(d);
    released = d;
}
