// Partial products of x * (PLUS - MINUS) modulo 2^WIDTH, for a constant in signed-digit form: one row
// for each non-zero digit, and one for the low ends of the negative ones.
module constant_rows #(
    parameter int WIDTH = 64,
    parameter int ROWS = 3,
    parameter logic [WIDTH-1:0] PLUS = 1,
    parameter logic [WIDTH-1:0] MINUS = 0
) (
    input  logic [     WIDTH-1:0] x,
    output logic [ROWS*WIDTH-1:0] rows
);
  // Number of non-zero digits below digit `below`.
  function automatic int digits(input int below);
    digits = 0;
    for (int i = 0; i < WIDTH; i++)
      if (i < below && (PLUS[i] || MINUS[i])) digits = digits + 1;
  endfunction

  generate
    for (genvar i = 0; i < WIDTH; i++) begin : g_digit
      if (PLUS[i]) begin : g_plus
        assign rows[digits(i)*WIDTH+:WIDTH] = x << i;
      end else if (MINUS[i]) begin : g_minus
        // -(x << i) is (~x << i) + (1 << i).
        assign rows[digits(i)*WIDTH+:WIDTH] = ~x << i;
      end
    end
  endgenerate
  assign rows[(ROWS-1)*WIDTH+:WIDTH] = MINUS;
endmodule
