`include "spec_engine.svh"

// In place of the hash unit in proofs: any values. What is proved holds for every hash function.
module hash_unit #(
    parameter int HASH = `SPEC_ENGINE_HASH,
    parameter int FRAME_BITS = `SPEC_ENGINE_FRAME_BITS,
    localparam int BITS = `SPEC_ENGINE_HASH_BITS,
    localparam int STAGES = `SPEC_ENGINE_HASH_STAGES(HASH)
) (
    input  logic                  clk,
    input  logic [    STAGES-1:0] enable,
    input  logic [      BITS-1:0] key,
    input  logic [FRAME_BITS-1:0] range_start,
    input  logic [FRAME_BITS-1:0] range_frames,
    output logic [      BITS-1:0] mixed,
    output logic [FRAME_BITS-1:0] frame
);
  (* anyseq *) logic [BITS-1:0] any_mixed;
  (* anyseq *) logic [FRAME_BITS-1:0] any_frame;
  assign mixed = any_mixed;
  assign frame = any_frame;
endmodule
