// CRC of a key, with a constant as its initial value. A CRC is linear: each bit is the parity of some bits of
// the key.
module crc_unit #(
    parameter int KEY_BITS = 64,
    parameter logic [63:0] POLYNOMIAL = 64'd1,
    parameter logic [63:0] SALT = 64'd0
) (
    input  logic [KEY_BITS-1:0] key,
    output logic [        63:0] crc
);
  // The bits of the key on which bit `number` of the CRC depends. The CRC of a single bit of the key is that of
  // the bit below it, shifted.
  function automatic logic [63:0] mask(input logic [5:0] number);
    logic [63:0] value;
    value = POLYNOMIAL;
    for (int i = 0; i < 64; i++) begin
      mask[i] = value[number];
      value   = value << 1 ^ (value[63] ? POLYNOMIAL : 64'd0);
    end
  endfunction

  logic [63:0] whole;
  assign whole = 64'(key) ^ SALT;
  generate
    for (genvar i = 0; i < 64; i++) begin : g_bit
      localparam logic [63:0] MASK = mask(6'(i));
      assign crc[i] = ^(whole & MASK);
    end
  endgenerate
endmodule
