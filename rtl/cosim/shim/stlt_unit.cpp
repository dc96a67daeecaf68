// The functions by which Rust drives the STLT unit (src/stlt_unit.rs has the same structures).
#include <cstdint>
#include <memory>

#include "Model.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

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

struct Unit {
    VerilatedContext context;
    Model model{&context};
    uint64_t time = 0;
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace;
#endif
    void dump() {
#if VM_TRACE
        // Half a cycle of 1 ns.
        if (trace) trace->dump(time * 500);
#endif
        time++;
    }
};

extern "C" Unit *stlt_unit_new() {
#if VM_TRACE
    Verilated::traceEverOn(true);
#endif
    return new Unit;
}

extern "C" void stlt_unit_free(Unit *unit) {
#if VM_TRACE
    if (unit->trace) unit->trace->close();
#endif
    unit->model.final();
    delete unit;
}

// Begins a waveform, or ends it (`path` is null).
extern "C" void stlt_unit_trace(Unit *unit, const char *path) {
#if VM_TRACE
    if (unit->trace) unit->trace->close();
    unit->trace.reset();
    if (path) {
        unit->trace = std::make_unique<VerilatedVcdC>();
        unit->model.trace(unit->trace.get(), 99);
        unit->trace->open(path);
        unit->time = 0;
    }
#endif
}

// One cycle: outputs with these inputs, then the clock's edge.
extern "C" void stlt_unit_step(Unit *unit, const Inputs *in, Outputs *out) {
    Model &m = unit->model;
    m.clk = 0;
#define IN(name) m.name = in->name;
    IN(crs_base) IN(req_integer) IN(req_va) IN(row_word) IN(row_pte) IN(walked_pte) IN(ipb_vpn) IN(stb_vpn)
    IN(shoot_vpn) IN(crs_mask) IN(random_pick) IN(req_asid) IN(stb_asid) IN(shoot_asid) IN(random_count)
    IN(rst) IN(crs_write) IN(crs_on) IN(req_valid) IN(req_insert) IN(set_ready) IN(row_valid)
    IN(write_ready) IN(walk_ready) IN(walked_valid) IN(walked_id) IN(ipb_insert) IN(ipb_clear) IN(ipb_size)
    IN(stb_valid) IN(stb_store) IN(shoot_valid) IN(shoot_all) IN(shoot_size)
#undef IN
    m.eval();
    unit->dump();
#define OUT(name) out->name = m.name;
    OUT(res_va) OUT(set_row) OUT(write_row) OUT(write_word) OUT(write_pte) OUT(walk_vpn) OUT(stb_pte)
    OUT(walk_asid) OUT(idle) OUT(req_ready) OUT(res_valid) OUT(set_valid) OUT(write_valid)
    OUT(write_counter) OUT(walk_valid) OUT(walk_id) OUT(ipb_full) OUT(stb_hit)
#undef OUT
    out->inserted = m.event_inserted;
    out->outcome = m.event_outcome;
    out->dropped = m.event_dropped;
    out->invalid = m.event_invalid;
    m.clk = 1;
    m.eval();
    unit->dump();
}
