// The ports of the speculation engine (src/spec_engine.rs has the same structures).
#include <cstdint>

struct Inputs {
    uint64_t reg_value;
    uint64_t req_line;
    uint16_t req_asid;
    uint16_t probe_delay;
    uint8_t rst;
    uint8_t reg_valid;
    uint8_t reg_index;
    uint8_t req_valid;
    uint8_t req_merges;
    uint8_t guess_ready;
};

struct Outputs {
    uint64_t guess_line;
    uint64_t probe_line;
    uint8_t reg_ready;
    uint8_t req_ready;
    uint8_t guess_valid;
    uint8_t guess_entry;
    uint8_t data_withheld;
    uint8_t table_withheld;
    uint8_t entry;
    uint8_t tier;
    uint8_t guess;
    uint8_t repeated;
    uint8_t delayed;
    // The candidate that is judged in the next cycle.
    uint8_t probe_valid;
};

#include "block.h"

static void set(Model &m, const Inputs &in) {
    m.rst = in.rst;
    m.reg_valid = in.reg_valid;
    m.reg_index = in.reg_index;
    m.reg_value = in.reg_value;
    m.req_valid = in.req_valid;
    m.req_asid = in.req_asid;
    m.req_line = in.req_line;
    m.req_merges = in.req_merges;
    m.probe_delay = in.probe_delay;
    m.guess_ready = in.guess_ready;
}

static void get(const Model &m, Outputs &out) {
    out.reg_ready = m.reg_ready;
    out.req_ready = m.req_ready;
    out.guess_valid = m.guess_valid;
    out.guess_line = m.guess_line;
    out.guess_entry = m.guess_entry;
    out.data_withheld = m.event_data_withheld;
    out.table_withheld = m.event_table_withheld;
    out.entry = m.event_entry;
    out.tier = m.event_tier;
    out.guess = m.event_guess;
    out.repeated = m.event_repeated;
    out.delayed = m.event_delayed;
}

static void get_after(const Model &m, Outputs &out) {
    out.probe_valid = m.probe_valid;
    out.probe_line = m.probe_line;
}
