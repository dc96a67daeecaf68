// True if one of two pages contains the other. A size of 1 is 2 MB and of 2 is 1 GB.
module page_match #(
    parameter int VPN_BITS   = 36,
    parameter int LEVEL_BITS = 9
) (
    input  logic [VPN_BITS-1:0] a,
    input  logic [         1:0] a_size,
    input  logic [VPN_BITS-1:0] b,
    input  logic [         1:0] b_size,
    output logic                same
);
  logic [VPN_BITS-1:0] differs;
  logic two_mb, one_gb;
  assign differs = a ^ b;
  assign two_mb = (a_size | b_size) != '0;
  assign one_gb = a_size[1] || b_size[1];
  assign same = differs[VPN_BITS-1:2*LEVEL_BITS] == '0 &&
      (one_gb || differs[2*LEVEL_BITS-1:LEVEL_BITS] == '0) &&
      (two_mb || differs[LEVEL_BITS-1:0] == '0);
endmodule
