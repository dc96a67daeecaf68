// Partial products of x * y + (start << X_BITS), radix-4 Booth recoding of y. Both factors are unsigned.
// The sum of the rows is right modulo 2^(X_BITS + Y_BITS).
module booth_rows #(
    parameter int X_BITS = 64,
    parameter int Y_BITS = 26,
    parameter int DIGITS = Y_BITS / 2 + 1,
    parameter int ROWS   = DIGITS + 3,
    parameter int WIDTH  = X_BITS + Y_BITS
) (
    input  logic [    X_BITS-1:0] x,
    input  logic [    Y_BITS-1:0] y,
    input  logic [    Y_BITS-1:0] start,
    output logic [ROWS*WIDTH-1:0] rows
);
  // Width of 2x.
  localparam int M = X_BITS + 1;

  // Each row holds the inverse of its sign in the bit above its magnitude, instead of copies of the sign
  // in all bits above. The difference is this constant.
  function automatic logic [WIDTH-1:0] signs();
    signs = '0;
    for (int i = 0; i < DIGITS; i++)
      if (2 * i + M < WIDTH) signs = signs - (WIDTH'(1) << (2 * i + M));
  endfunction

  // y with the 0 below its lowest bit, and those above its highest.
  logic [2*DIGITS:0] bits;
  assign bits = (2 * DIGITS + 1)'({y, 1'b0});

  // Negative rows are inverted: the 1 that completes the complement is added at their low end.
  logic [WIDTH-1:0] ends;
  generate
    for (genvar i = 0; i < DIGITS; i++) begin : g_digit
      logic one, two, minus;
      logic [M-1:0] magnitude;
      assign one = bits[2*i] ^ bits[2*i+1];
      assign two = (bits[2*i+2] ^ bits[2*i+1]) & ~one;
      assign minus = bits[2*i+2];
      assign magnitude = ({M{one}} & M'(x)) | ({M{two}} & {x, 1'b0});
      assign rows[i*WIDTH+:WIDTH] = WIDTH'({~minus, magnitude ^ {M{minus}}}) << (2 * i);
      assign ends[2*i+:2] = {1'b0, minus};
    end
    if (2 * DIGITS < WIDTH) begin : g_ends
      assign ends[WIDTH-1:2*DIGITS] = '0;
    end
  endgenerate
  assign rows[DIGITS*WIDTH+:WIDTH] = ends;
  assign rows[(DIGITS+1)*WIDTH+:WIDTH] = signs();
  assign rows[(DIGITS+2)*WIDTH+:WIDTH] = {start, X_BITS'(0)};
endmodule
