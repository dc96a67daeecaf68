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
  logic [BASE_BITS-1:0] entries[ENTRIES];
  always_ff @(posedge clk) begin
    if (rst) valid <= '0;
    else if (write) valid[index] <= present;
    if (write) entries[index] <= base;
  end
  generate
    for (genvar i = 0; i < SIZES; i++) begin : g_port
      logic [ENTRY_BITS-1:0] read;
      assign read = reads[i*ENTRY_BITS+:ENTRY_BITS];
      always_ff @(posedge clk) begin
        if (enable) begin
          presents[i] <= read < ENTRY_BITS'(ENTRIES) && valid[read];
          bases[i*BASE_BITS+:BASE_BITS] <= entries[read];
        end
      end
    end
  endgenerate
endmodule
