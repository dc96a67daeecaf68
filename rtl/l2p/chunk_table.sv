`include "l2p.svh"

// The L2P entries of one way: three adjacent sub-tables, and a port for each page size.
module chunk_table #(
    localparam int SIZES = `L2P_SIZES,
    localparam int ENTRIES = `L2P_SIZES * `L2P_ENTRIES,
    localparam int ENTRY_BITS = `L2P_ENTRY_BITS,
    localparam int BASE_BITS = `L2P_BASE_BITS
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic                        write,
    input  logic [      ENTRY_BITS-1:0] index,
    input  logic                        present,
    input  logic [       BASE_BITS-1:0] base,
    // A read of each port in each cycle; its result is known in the next cycle.
    input  logic                        enable,
    input  logic [SIZES*ENTRY_BITS-1:0] reads,
    output logic [           SIZES-1:0] presents,
    output logic [ SIZES*BASE_BITS-1:0] bases
);
  logic [ENTRIES-1:0] valid;
  logic [ENTRIES*BASE_BITS-1:0] entries;
  // An entry, with its valid bit above it.
  function automatic logic [BASE_BITS:0] entry(input logic [ENTRY_BITS-1:0] number);
    entry = '0;
    for (int i = 0; i < ENTRIES; i++)
    if (number == ENTRY_BITS'(i)) entry = entry | {valid[i], entries[i*BASE_BITS+:BASE_BITS]};
  endfunction

  generate
    for (genvar i = 0; i < ENTRIES; i++) begin : g_entry
      always_ff @(posedge clk) begin
        if (rst) valid[i] <= 1'b0;
        else if (write && index == ENTRY_BITS'(i)) valid[i] <= present;
        if (write && index == ENTRY_BITS'(i)) entries[i*BASE_BITS+:BASE_BITS] <= base;
      end
    end
    for (genvar s = 0; s < SIZES; s++) begin : g_port
      always_ff @(posedge clk)
        if (enable)
          {presents[s], bases[s*BASE_BITS+:BASE_BITS]} <= entry(reads[s*ENTRY_BITS+:ENTRY_BITS]);
    end
  endgenerate
endmodule
