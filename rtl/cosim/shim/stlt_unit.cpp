// The ports of the STLT unit (src/stlt_unit.rs has the same structures).
#include <cstdint>

struct Inputs {
    uint64_t crs_base, req_integer, req_va, row_word, row_pte, walked_pte, ipb_vpn, stb_vpn, shoot_vpn;
    uint32_t crs_mask, random_pick;
    uint16_t req_asid, stb_asid, shoot_asid, random_count;
    uint8_t rst, crs_write, crs_on, req_valid, req_insert, set_ready, row_valid, write_ready, walk_ready;
    uint8_t walked_valid, walked_id, ipb_insert, ipb_clear, ipb_size, stb_valid, stb_store;
    uint8_t shoot_valid, shoot_all, shoot_size;
};

struct Outputs {
    uint64_t res_va, set_row, write_row, write_word, write_pte, walk_vpn, stb_pte;
    uint16_t walk_asid;
    uint8_t idle, req_ready, res_valid, set_valid, write_valid, write_counter, walk_valid, walk_id;
    uint8_t ipb_full, stb_hit, inserted, outcome, dropped, invalid;
};

#include "block.h"

static void set(Model &m, const Inputs &in) {
#define IN(name) m.name = in.name;
    IN(crs_base) IN(req_integer) IN(req_va) IN(row_word) IN(row_pte) IN(walked_pte) IN(ipb_vpn) IN(stb_vpn)
    IN(shoot_vpn) IN(crs_mask) IN(random_pick) IN(req_asid) IN(stb_asid) IN(shoot_asid) IN(random_count)
    IN(rst) IN(crs_write) IN(crs_on) IN(req_valid) IN(req_insert) IN(set_ready) IN(row_valid)
    IN(write_ready) IN(walk_ready) IN(walked_valid) IN(walked_id) IN(ipb_insert) IN(ipb_clear) IN(ipb_size)
    IN(stb_valid) IN(stb_store) IN(shoot_valid) IN(shoot_all) IN(shoot_size)
#undef IN
}

static void get(const Model &m, Outputs &out) {
#define OUT(name) out.name = m.name;
    OUT(res_va) OUT(set_row) OUT(write_row) OUT(write_word) OUT(write_pte) OUT(walk_vpn) OUT(stb_pte)
    OUT(walk_asid) OUT(idle) OUT(req_ready) OUT(res_valid) OUT(set_valid) OUT(write_valid)
    OUT(write_counter) OUT(walk_valid) OUT(walk_id) OUT(ipb_full) OUT(stb_hit)
#undef OUT
    out.inserted = m.event_inserted;
    out.outcome = m.event_outcome;
    out.dropped = m.event_dropped;
    out.invalid = m.event_invalid;
}

static void get_after(const Model &, Outputs &) {}
