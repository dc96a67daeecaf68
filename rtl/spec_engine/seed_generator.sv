`include "spec_engine.svh"

// Generates the seeds of the tiers from one value (SplitMix64): number n is the mixed value
// seed + n * step. It uses the mixing stages of the hash unit, once after each write of the seed.
module seed_generator #(
    parameter int TIERS = `SPEC_ENGINE_TIERS,
    localparam int BITS = `SPEC_ENGINE_HASH_BITS,
    localparam int SEEDS = `SPEC_ENGINE_TIERS,
    localparam int NB = $clog2(SEEDS + 1)
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  start,
    input  logic [      BITS-1:0] seed,
    // Number of the seed of each tier, from 1 on.
    input  logic [  TIERS*NB-1:0] order,
    // To the hash unit, which takes a value in each cycle with `advance`.
    input  logic                  advance,
    output logic                  issue,
    output logic [      BITS-1:0] issue_value,
    // From the hash unit, in the order of issue.
    input  logic                  mixed_valid,
    input  logic [      BITS-1:0] mixed,
    output logic                  busy,
    output logic [TIERS*BITS-1:0] seeds
);
  // The seed until `primed`, and then the value that is issued next.
  logic [BITS-1:0] value;
  logic primed;
  // Numbers of values issued and seeds received.
  logic [NB-1:0] issued, received;

  assign issue = busy && primed && issued != NB'(SEEDS);
  assign issue_value = value;

  always_ff @(posedge clk) begin
    if (rst) begin
      busy <= 1'b0;
      primed <= 1'b1;
      issued <= '0;
      received <= '0;
    end else if (start) begin
      busy <= 1'b1;
      primed <= 1'b0;
      issued <= '0;
      received <= '0;
    end else begin
      primed <= 1'b1;
      if (issue && advance) issued <= issued + 1'b1;
      if (mixed_valid) begin
        received <= received + 1'b1;
        busy <= busy && received != NB'(SEEDS - 1);
      end
    end
    if (start) value <= seed;
    else if (!primed || issue && advance) value <= value + `SPEC_ENGINE_SEED_STEP;
  end

  generate
    for (genvar t = 0; t < TIERS; t++) begin : g_seed
      always_ff @(posedge clk)
        if (mixed_valid && order[t*NB+:NB] == received + 1'b1) seeds[t*BITS+:BITS] <= mixed;
    end
  endgenerate
endmodule
