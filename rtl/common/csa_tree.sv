// Carry-save adder tree: reduces ROWS numbers of WIDTH bits to two with the same sum modulo 2^WIDTH.
// Each level replaces three rows by two, by one full adder a bit (C. S. Wallace, 1964).
module csa_tree #(
    parameter int ROWS  = 3,
    parameter int WIDTH = 64
) (
    input  logic [ROWS*WIDTH-1:0] rows,
    output logic [     WIDTH-1:0] sum,
    output logic [     WIDTH-1:0] carry
);
  generate
    if (ROWS == 2) begin : g_done
      assign sum   = rows[0+:WIDTH];
      assign carry = rows[WIDTH+:WIDTH];
    end else begin : g_level
      localparam int ADDERS = ROWS / 3;
      localparam int REST = ROWS % 3;
      localparam int LEFT = 2 * ADDERS + REST;
      logic [LEFT*WIDTH-1:0] left;
      for (genvar i = 0; i < ADDERS; i++) begin : g_adder
        logic [WIDTH-1:0] a, b, c;
        // The carry out of the highest bit has no place in a sum modulo 2^WIDTH.
        logic [WIDTH-2:0] majority;
        assign a = rows[(3*i)*WIDTH+:WIDTH];
        assign b = rows[(3*i+1)*WIDTH+:WIDTH];
        assign c = rows[(3*i+2)*WIDTH+:WIDTH];
        assign majority = (a[WIDTH-2:0] & b[WIDTH-2:0]) | (c[WIDTH-2:0] & (a[WIDTH-2:0] | b[WIDTH-2:0]));
        assign left[(2*i)*WIDTH+:WIDTH] = a ^ b ^ c;
        assign left[(2*i+1)*WIDTH+:WIDTH] = {majority, 1'b0};
      end
      if (REST != 0) begin : g_rest
        assign left[2*ADDERS*WIDTH+:REST*WIDTH] = rows[3*ADDERS*WIDTH+:REST*WIDTH];
      end
      csa_tree #(
          .ROWS (LEFT),
          .WIDTH(WIDTH)
      ) next (
          .rows(left),
          .sum,
          .carry
      );
    end
  endgenerate
endmodule
