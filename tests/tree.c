/* A tree whose nodes are never all visited. Its memory does not change in the region. */
// Conditional moves would leave nothing to mispredict.
#pragma GCC optimize ("no-if-conversion", "no-if-conversion2")
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "pagewalk.h"
struct node { struct node *child[2]; uint64_t key, rest[61]; };
int main(void) {
    enum { NODES = 1 << 14 };
    struct node *nodes = aligned_alloc(4096, NODES * sizeof *nodes);
    for (uint64_t i = 1; i < NODES; i++) {
        nodes[i] = (struct node){.key = i * 0x9e3779b97f4a7c15u};
        for (int k = 0; k < 2; k++)
            nodes[i].child[k] = 2 * i + k < NODES ? &nodes[2 * i + k] : 0;
    }
    volatile uint64_t sum = 0;
    uint64_t x = 88172645463325252u;
    pagewalk_roi_begin();
    for (int i = 0; i < 400; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        uint64_t way = x;
        for (struct node *n = &nodes[1]; n; way >>= 1) {
            sum += n->key;
            if ((n->key >> 20 ^ way) & 1)
                n = n->child[0];
            else
                n = n->child[1];
        }
    }
    pagewalk_roi_end();
    // The simulated kernel would answer once the simulation had come here: until then the memory stays.
    FILE *file = fopen("/proc/self/smaps", "r");
    fgetc(file);
}
