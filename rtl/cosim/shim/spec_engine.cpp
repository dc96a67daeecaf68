// The functions by which Rust drives the speculation engine (src/spec_engine.rs has the same structures).
#include <cstdint>
#include <memory>

#include "Model.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

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

// A context must know of waveforms before its model is made.
static VerilatedContext *prepared(VerilatedContext &context) {
#if VM_TRACE
    context.traceEverOn(true);
#endif
    return &context;
}

struct Engine {
    VerilatedContext context;
    Model model{prepared(context)};
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

extern "C" Engine *spec_engine_new() { return new Engine; }

extern "C" void spec_engine_free(Engine *engine) {
#if VM_TRACE
    if (engine->trace) engine->trace->close();
#endif
    engine->model.final();
    delete engine;
}

// Begins a waveform, or ends it (`path` is null).
extern "C" void spec_engine_trace(Engine *engine, const char *path) {
#if VM_TRACE
    if (engine->trace) engine->trace->close();
    engine->trace.reset();
    if (path) {
        engine->trace = std::make_unique<VerilatedVcdC>();
        engine->model.trace(engine->trace.get(), 99);
        engine->trace->open(path);
        engine->time = 0;
    }
#endif
}

// One cycle: outputs with these inputs, then the clock's edge.
extern "C" void spec_engine_step(Engine *engine, const Inputs *in, Outputs *out) {
    Model &m = engine->model;
    m.clk = 0;
    m.rst = in->rst;
    m.reg_valid = in->reg_valid;
    m.reg_index = in->reg_index;
    m.reg_value = in->reg_value;
    m.req_valid = in->req_valid;
    m.req_asid = in->req_asid;
    m.req_line = in->req_line;
    m.req_merges = in->req_merges;
    m.probe_delay = in->probe_delay;
    m.guess_ready = in->guess_ready;
    m.eval();
    engine->dump();
    out->reg_ready = m.reg_ready;
    out->req_ready = m.req_ready;
    out->guess_valid = m.guess_valid;
    out->guess_line = m.guess_line;
    out->guess_entry = m.guess_entry;
    out->data_withheld = m.event_data_withheld;
    out->table_withheld = m.event_table_withheld;
    out->entry = m.event_entry;
    out->tier = m.event_tier;
    out->guess = m.event_guess;
    out->repeated = m.event_repeated;
    out->delayed = m.event_delayed;
    m.clk = 1;
    m.eval();
    engine->dump();
    out->probe_valid = m.probe_valid;
    out->probe_line = m.probe_line;
}
