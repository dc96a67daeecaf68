`include "l2p.svh"

// CRC of a key, with a constant as its initial value. A CRC is linear: each bit is the parity of some bits of
// the key.
module crc_unit #(
    parameter int KEY_BITS = 33,
    parameter logic [63:0] SALT = 64'd0
) (
    input  logic [KEY_BITS-1:0] key,
    output logic [        63:0] crc
);
  // The CRC of the key with this bit alone.
  function automatic logic [63:0] column(input int bit_);
    logic [63:0] value;
    value = 64'd1 << bit_;
    for (int i = 0; i < 64; i++) value = value << 1 ^ (value[63] ? `L2P_POLYNOMIAL : 64'd0);
    return value;
  endfunction

  // For each bit of the CRC, the bits of the key that it depends on.
  function automatic logic [64*64-1:0] transposed();
    logic [64*64-1:0] rows;
    logic [63:0] value;
    rows = '0;
    for (int i = 0; i < 64; i++) begin
      value = column(i);
      for (int j = 0; j < 64; j++) rows[j*64+i] = value[j];
    end
    return rows;
  endfunction

  localparam logic [64*64-1:0] ROWS = transposed();
  logic [63:0] whole;
  assign whole = 64'(key) ^ SALT;
  generate
    for (genvar i = 0; i < 64; i++) begin : g_bit
      assign crc[i] = ^(whole & ROWS[i*64+:64]);
    end
  endgenerate
endmodule
