// The functions by which Rust drives a block (src/verilated.rs, `Model`). A shim includes this behind its structures
// `Inputs` and `Outputs`, and defines the three functions that move them.
#pragma once
#include <memory>

#include "Model.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

// Sets the inputs of a cycle.
static void set(Model &m, const Inputs &in);
// Reads the outputs that follow from them.
static void get(const Model &m, Outputs &out);
// Reads the outputs of after the clock's edge.
static void get_after(const Model &m, Outputs &out);

// A context must know of waveforms before its model is made.
static VerilatedContext *prepared(VerilatedContext &context) {
#if VM_TRACE
    context.traceEverOn(true);
#endif
    return &context;
}

struct Block {
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

extern "C" Block *block_new() { return new Block; }

extern "C" void block_free(Block *block) {
#if VM_TRACE
    if (block->trace) block->trace->close();
#endif
    block->model.final();
    delete block;
}

// Begins a waveform, or ends it (`path` is null).
extern "C" void block_trace(Block *block, const char *path) {
#if VM_TRACE
    if (block->trace) block->trace->close();
    block->trace.reset();
    if (path) {
        block->trace = std::make_unique<VerilatedVcdC>();
        block->model.trace(block->trace.get(), 99);
        block->trace->open(path);
        block->time = 0;
    }
#endif
}

// One cycle: outputs with these inputs, then the clock's edge.
extern "C" void block_step(Block *block, const Inputs *in, Outputs *out) {
    Model &m = block->model;
    m.clk = 0;
    set(m, *in);
    m.eval();
    block->dump();
    get(m, *out);
    m.clk = 1;
    m.eval();
    block->dump();
    get_after(m, *out);
}
