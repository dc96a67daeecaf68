`include "l2p.svh"

// In place of the L2P entries in proofs: any values. What is proved holds for all chunks.
module chunk_table #(
    localparam int SIZES = `L2P_SIZES,
    localparam int ENTRY_BITS = `L2P_ENTRY_BITS,
    localparam int BASE_BITS = `L2P_BASE_BITS
) (
    input  logic                        clk,
    input  logic                        rst,
    input  logic                        write,
    input  logic [      ENTRY_BITS-1:0] index,
    input  logic                        present,
    input  logic [       BASE_BITS-1:0] base,
    input  logic                        enable,
    input  logic [SIZES*ENTRY_BITS-1:0] reads,
    output logic [           SIZES-1:0] presents,
    output logic [ SIZES*BASE_BITS-1:0] bases
);
  (* anyseq *) logic [SIZES-1:0] any_presents;
  (* anyseq *) logic [SIZES*BASE_BITS-1:0] any_bases;
  assign presents = any_presents;
  assign bases = any_bases;
endmodule
