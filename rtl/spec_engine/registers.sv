`include "spec_engine.svh"

// The registers that the kernel writes. No bit is set before it is written, except for the degrees: after
// a reset they are 0, and the engine guesses nothing.
module registers #(
    parameter int TIERS = `SPEC_ENGINE_TIERS,
    parameter int FRAME_BITS = `SPEC_ENGINE_FRAME_BITS,
    localparam int COUNT_BITS = `SPEC_ENGINE_COUNT_BITS,
    localparam int DELAY_BITS = `SPEC_ENGINE_DELAY_BITS,
    localparam int NB = $clog2(`SPEC_ENGINE_TIERS + 1),
    localparam int REG_BITS = `SPEC_ENGINE_REG_BITS
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic                        write,
    input  logic [        REG_BITS-1:0] index,
    input  logic [                63:0] value,
    output logic                        seed_written,
    output logic [        TIERS*NB-1:0] order,
    // Number of tiers to guess, for data and for page-table entries.
    output logic [              NB-1:0] data_degree,
    output logic [              NB-1:0] table_degree,
    output logic [      FRAME_BITS-1:0] range_start,
    output logic [      FRAME_BITS-1:0] range_frames,
    // Placements by each tier, and the fewest for which it is guessed.
    output logic [TIERS*COUNT_BITS-1:0] data_hits,
    output logic [      COUNT_BITS-1:0] data_least,
    output logic [TIERS*COUNT_BITS-1:0] table_hits,
    output logic [      COUNT_BITS-1:0] table_least,
    // Longest delay of the DRAM's bus at which each tier is guessed, in cycles.
    output logic [TIERS*DELAY_BITS-1:0] delays
);
  logic unused;
  assign unused = &{1'b0, value};
  assign seed_written = write && index == REG_BITS'(`SPEC_ENGINE_REG_SEED);

  always_ff @(posedge clk) begin
    if (rst) begin
      data_degree  <= '0;
      table_degree <= '0;
    end else if (write && index == REG_BITS'(`SPEC_ENGINE_REG_DEGREE)) begin
      data_degree  <= value[0+:NB];
      table_degree <= value[8+:NB];
    end
    if (write && index == REG_BITS'(`SPEC_ENGINE_REG_RANGE_START)) range_start <= value[FRAME_BITS-1:0];
    if (write && index == REG_BITS'(`SPEC_ENGINE_REG_RANGE_FRAMES)) range_frames <= value[FRAME_BITS-1:0];
    if (write && index == REG_BITS'(`SPEC_ENGINE_REG_DATA_LEAST)) data_least <= value[COUNT_BITS-1:0];
    if (write && index == REG_BITS'(`SPEC_ENGINE_REG_TABLE_LEAST)) table_least <= value[COUNT_BITS-1:0];
  end

  generate
    for (genvar t = 0; t < TIERS; t++) begin : g_tier
      always_ff @(posedge clk) begin
        if (write && index == REG_BITS'(`SPEC_ENGINE_REG_ORDER)) order[t*NB+:NB] <= value[8*t+:NB];
        if (write && index == REG_BITS'(`SPEC_ENGINE_REG_DATA_HITS + t))
          data_hits[t*COUNT_BITS+:COUNT_BITS] <= value[COUNT_BITS-1:0];
        if (write && index == REG_BITS'(`SPEC_ENGINE_REG_TABLE_HITS + t))
          table_hits[t*COUNT_BITS+:COUNT_BITS] <= value[COUNT_BITS-1:0];
        if (write && index == REG_BITS'(`SPEC_ENGINE_REG_DELAY + t))
          delays[t*DELAY_BITS+:DELAY_BITS] <= value[DELAY_BITS-1:0];
      end
    end
  endgenerate
endmodule
