/* The C header alone, over one table. */
#include <stdio.h>

#include "lookaside.h"

static int equal(void *context, void *at) { return *(int *)at == *(int *)context; }

int main(void) {
    lookaside_table *table;
    int records[100], key, hits = 0;
    if (lookaside_new(1024, &table) != LOOKASIDE_OK)
        return 1;
    for (key = 0; key < 100; key++) {
        records[key] = key;
        if (!lookaside_insert(table, lookaside_mix(key), &records[key]))
            return 2;
    }
    for (key = 0; key < 100; key++) {
        int *found = lookaside_find(table, lookaside_mix(key), equal, &key);
        if (found != NULL && found != &records[key])
            return 3;
        hits += found != NULL;
    }
    /* The rows are ten times as many as the records: no set is full. */
    if (hits != 100)
        return 4;
    lookaside_invalidate(table, lookaside_mix(key = 5));
    return lookaside_find(table, lookaside_mix(5), equal, &key) != NULL || lookaside_free(table) != LOOKASIDE_OK;
}
