`include "l2p.svh"

// Registers of one way of one page size: the sizes and chunks of its old and its new table, and the rehash
// pointer.
module way_registers #(
    localparam int SLOT_BITS  = `L2P_SLOT_BITS,
    localparam int SIZE_BITS  = $clog2(SLOT_BITS + 1),
    localparam int ENTRY_BITS = `L2P_ENTRY_BITS,
    localparam int CHUNK_BITS = `L2P_CHUNK_KIND_BITS
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  write_slots,
    input  logic                  write_pointer,
    input  logic                  write_chunks,
    input  logic [          63:0] value,
    // The way has memory.
    output logic                  live,
    // Old and new table have different chunks.
    output logic                  separate,
    // Binary logarithms of the slots.
    output logic [ SIZE_BITS-1:0] old_bits,
    output logic [ SIZE_BITS-1:0] new_bits,
    output logic [   SLOT_BITS:0] pointer,
    // Kinds of chunks, and the L2P entries of the first chunks.
    output logic [CHUNK_BITS-1:0] old_kind,
    output logic [CHUNK_BITS-1:0] new_kind,
    output logic [ENTRY_BITS-1:0] old_first,
    output logic [ENTRY_BITS-1:0] new_first
);
  logic unused;
  assign unused = &{1'b0, value[63:SLOT_BITS+1]};
  always_ff @(posedge clk) begin
    if (rst) live <= 1'b0;
    else if (write_slots) live <= value[2*SIZE_BITS+1];
    if (write_slots) {separate, new_bits, old_bits} <= value[2*SIZE_BITS:0];
    if (write_pointer) pointer <= value[SLOT_BITS:0];
    if (write_chunks)
      {new_first, old_first, new_kind, old_kind} <= value[2*ENTRY_BITS+2*CHUNK_BITS-1:0];
  end
endmodule
