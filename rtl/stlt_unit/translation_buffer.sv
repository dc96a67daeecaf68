`include "stlt_unit.svh"

// The STB: translations of the rows that `loadVA` has found, replaced first-in first-out. Of several
// entries with the page the lowest answers. An entry that forbids stores does not answer a store.
module translation_buffer #(
    parameter int ENTRIES = `STLT_UNIT_STB_ENTRIES,
    localparam int ASID_BITS = `STLT_UNIT_ASID_BITS,
    localparam int PAGE_BITS = `STLT_UNIT_PAGE_BITS,
    localparam int SIZE_AT = `STLT_UNIT_PTE_SIZE_BIT,
    localparam int FRAME_BITS = `STLT_UNIT_PA_BITS - PAGE_BITS,
    localparam int VPN_BITS = `STLT_UNIT_VA_BITS - PAGE_BITS,
    localparam int POINTER_BITS = $clog2(ENTRIES)
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic                 insert,
    input  logic [ASID_BITS-1:0] asid,
    input  logic [ VPN_BITS-1:0] vpn,
    input  logic [         63:0] pte,
    input  logic                 lookup_valid,
    input  logic [ASID_BITS-1:0] lookup_asid,
    input  logic [ VPN_BITS-1:0] lookup_vpn,
    input  logic                 lookup_store,
    output logic                 hit,
    output logic [         63:0] hit_pte,
    input  logic                 shoot_valid,
    input  logic                 shoot_all,
    input  logic [ASID_BITS-1:0] shoot_asid,
    input  logic [ VPN_BITS-1:0] shoot_vpn,
    input  logic [          1:0] shoot_size
);
  logic [POINTER_BITS-1:0] next;
  logic [ENTRIES-1:0] valid, answers, chosen;
  // The used fields of a page-table entry: frame, size, and whether stores are allowed.
  localparam int FIELDS = FRAME_BITS + 3;
  logic [ENTRIES*FIELDS-1:0] fields;

  always_ff @(posedge clk) begin
    if (rst) next <= '0;
    else if (insert) next <= next == POINTER_BITS'(ENTRIES - 1) ? '0 : next + 1'b1;
  end

  generate
    for (genvar i = 0; i < ENTRIES; i++) begin : g_entry
      logic [ASID_BITS-1:0] entry_asid;
      logic [VPN_BITS-1:0] entry_vpn;
      logic [FRAME_BITS-1:0] frame;
      logic [1:0] size;
      logic writable, looked, shot, fills;
      assign fills = insert && next == POINTER_BITS'(i);
      always_ff @(posedge clk) begin
        if (rst) valid[i] <= 1'b0;
        else if (fills) valid[i] <= 1'b1;
        else if (shoot_valid && entry_asid == shoot_asid && (shoot_all || shot)) valid[i] <= 1'b0;
        if (fills) begin
          entry_asid <= asid;
          entry_vpn <= vpn;
          frame <= pte[PAGE_BITS+:FRAME_BITS];
          size <= pte[SIZE_AT+:2];
          writable <= pte[1];
        end
      end
      page_match #(
          .VPN_BITS(VPN_BITS),
          .LEVEL_BITS(`STLT_UNIT_LEVEL_BITS)
      ) lookup_match (
          .a(entry_vpn),
          .a_size(size),
          .b(lookup_vpn),
          .b_size(2'd0),
          .same(looked)
      );
      page_match #(
          .VPN_BITS(VPN_BITS),
          .LEVEL_BITS(`STLT_UNIT_LEVEL_BITS)
      ) shoot_match (
          .a(entry_vpn),
          .a_size(size),
          .b(shoot_vpn),
          .b_size(shoot_size),
          .same(shot)
      );
      assign answers[i] = valid[i] && looked && entry_asid == lookup_asid && (writable || !lookup_store);
      assign fields[i*FIELDS+:FIELDS] = {frame, size, writable};
    end
  endgenerate

  assign chosen = answers & (~answers + 1'b1);
  logic [FIELDS-1:0] answer;
  always_comb begin
    answer = '0;
    for (int i = 0; i < ENTRIES; i++)
      answer = answer | (fields[i*FIELDS+:FIELDS] & {FIELDS{chosen[i]}});
  end
  logic [FRAME_BITS-1:0] answer_frame;
  logic [1:0] answer_size;
  logic answer_writable;
  always_ff @(posedge clk) begin
    if (rst) hit <= 1'b0;
    else hit <= lookup_valid && answers != '0;
    if (lookup_valid) {answer_frame, answer_size, answer_writable} <= answer;
  end
  always_comb begin
    hit_pte = '0;
    hit_pte[PAGE_BITS+:FRAME_BITS] = answer_frame;
    hit_pte[SIZE_AT+:2] = answer_size;
    hit_pte[1:0] = {answer_writable, 1'b1};
  end
  logic unused_pte;
  assign unused_pte = &{1'b0, pte[63:PAGE_BITS+FRAME_BITS], pte[PAGE_BITS-1:SIZE_AT+2], pte[SIZE_AT-1:2], pte[0]};
endmodule
