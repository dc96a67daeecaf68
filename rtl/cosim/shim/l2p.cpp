// The ports of the L2P table (src/l2p.rs has the same structures).
#include <cstdint>
#include <cstring>

struct Inputs {
    uint64_t write_value, req_key;
    uint8_t rst, write_valid, write_what, write_way, write_size, write_index, req_valid;
    uint8_t cwc_pud_hit, cwc_pud_header, cwc_pmd_hit, cwc_pmd_header;
};

struct Outputs {
    // Lines of all ways, packed.
    uint32_t lines[16];
    uint16_t ways, live, missing;
    uint8_t write_ready, req_ready, valid, all;
    // The headers of a walk are due in the next cycle.
    uint8_t cwc_due;
};

#include "block.h"

static void set(Model &m, const Inputs &in) {
#define IN(name) m.name = in.name;
    IN(rst) IN(write_valid) IN(write_what) IN(write_way) IN(write_size) IN(write_index) IN(write_value)
    IN(req_valid) IN(req_key) IN(cwc_pud_hit) IN(cwc_pud_header) IN(cwc_pmd_hit) IN(cwc_pmd_header)
#undef IN
}

static void get(const Model &m, Outputs &out) {
    static_assert(sizeof(m.res_lines) <= sizeof(out.lines), "the lines of four ways fit");
    out.write_ready = m.write_ready;
    out.req_ready = m.req_ready;
    out.valid = m.res_valid;
    out.all = m.res_all;
    out.ways = m.res_ways;
    out.live = m.res_live;
    out.missing = m.res_missing;
    if (m.res_valid) std::memcpy(out.lines, &m.res_lines, sizeof(m.res_lines));
}

static void get_after(const Model &m, Outputs &out) { out.cwc_due = m.cwc_due; }
