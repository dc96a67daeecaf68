`include "spec_engine.svh"

// CRC of the key, rotated to the left.
//
//   stage 0  the key, because its selection takes part of a cycle
//   stage 1  its CRC
module mix_crc #(
    localparam int BITS = `SPEC_ENGINE_HASH_BITS,
    localparam int STAGES = `SPEC_ENGINE_MIXED_STAGE(`SPEC_ENGINE_HASH_CRC) + 1
) (
    input  logic              clk,
    input  logic [STAGES-1:0] enable,
    input  logic [  BITS-1:0] key,
    output logic [  BITS-1:0] mixed
);
  localparam int ROTATION = `SPEC_ENGINE_CRC_ROTATION;
  logic [BITS-1:0] x0, crc;
  crc_unit #(
      .KEY_BITS  (BITS),
      .POLYNOMIAL(`SPEC_ENGINE_POLYNOMIAL)
  ) crc_unit (
      .key(x0),
      .crc
  );
  always_ff @(posedge clk) begin
    if (enable[0]) x0 <= key;
    if (enable[1]) mixed <= {crc[BITS-ROTATION-1:0], crc[BITS-1:BITS-ROTATION]};
  end
endmodule
