`include "spec_engine.svh"

// The part of the degree filter that looks at memory pressure: the tiers that have placed enough pages,
// a bit each. The first tier always serves.
module share_filter #(
    parameter int TIERS = `SPEC_ENGINE_TIERS,
    localparam int COUNT_BITS = `SPEC_ENGINE_COUNT_BITS,
    localparam int NB = $clog2(`SPEC_ENGINE_TIERS + 1)
) (
    input  logic [              NB-1:0] degree,
    input  logic [TIERS*COUNT_BITS-1:0] hits,
    input  logic [      COUNT_BITS-1:0] least,
    // The tiers below `degree` that serve, and those that are withheld.
    output logic [           TIERS-1:0] serving,
    output logic [           TIERS-1:0] withheld
);
  generate
    for (genvar t = 0; t < TIERS; t++) begin : g_tier
      logic tried, enough;
      assign tried = degree > NB'(t);
      assign enough = t == 0 || hits[t*COUNT_BITS+:COUNT_BITS] >= least;
      assign serving[t] = tried && enough;
      assign withheld[t] = tried && !enough;
    end
  endgenerate
endmodule
