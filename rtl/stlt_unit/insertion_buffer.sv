`include "stlt_unit.svh"

// Insertions whose scan, walk or write has not ended. They leave in the order in which they are ready.
module insertion_buffer #(
    parameter int ENTRIES = `STLT_UNIT_INSERTIONS,
    parameter int WAYS = `STLT_UNIT_WAYS,
    localparam int VA_BITS = `STLT_UNIT_VA_BITS,
    localparam int PAGE_BITS = `STLT_UNIT_PAGE_BITS,
    localparam int ASID_BITS = `STLT_UNIT_ASID_BITS,
    localparam int SUB_BITS = `STLT_UNIT_SUB_BITS,
    localparam int VPN_BITS = VA_BITS - PAGE_BITS,
    localparam int ROW_ADDRESS_BITS = `STLT_UNIT_PA_BITS - `STLT_UNIT_ROW_BITS,
    localparam int SHIFT = $clog2(WAYS),
    localparam int WAY_BITS = WAYS > 1 ? SHIFT : 1,
    localparam int ID_BITS = $clog2(ENTRIES)
) (
    input  logic                        clk,
    input  logic                        rst,
    // An insertion into the set that begins at `row`.
    input  logic                        allocate,
    input  logic [ROW_ADDRESS_BITS-1:0] row,
    input  logic [       ASID_BITS-1:0] asid,
    input  logic [        SUB_BITS-1:0] sub,
    input  logic [         VA_BITS-1:0] va,
    input  logic                        erases,
    output logic                        full,
    output logic                        empty,
    // An entry has a row of this set.
    output logic                        conflict,
    // The scan of the latest entry has ended.
    input  logic                        scanned,
    input  logic [        WAY_BITS-1:0] scanned_way,
    input  logic [                 1:0] scanned_kind,
    output logic                        walk_valid,
    input  logic                        walk_ready,
    output logic [         ID_BITS-1:0] walk_id,
    output logic [       ASID_BITS-1:0] walk_asid,
    output logic [        VPN_BITS-1:0] walk_vpn,
    input  logic                        walked_valid,
    input  logic [         ID_BITS-1:0] walked_id,
    input  logic [                63:0] walked_pte,
    output logic                        write_valid,
    input  logic                        write_ready,
    output logic [ROW_ADDRESS_BITS-1:0] write_row,
    output logic [                63:0] write_word,
    output logic [                63:0] write_pte,
`ifdef FORMAL
    input  logic [ROW_ADDRESS_BITS-1:0] formal_row,
    output logic                        formal_conflict,
    output logic [                 7:0] formal_entries,
    output logic [         ENTRIES-1:0] formal_unscanned,
    output logic [         ID_BITS-1:0] formal_latest,
`endif
    // An insertion has ended.
    output logic                        ended,
    output logic [                 1:0] outcome
);
  logic [ENTRIES-1:0] valid, is_scanned, is_walked, asked, faulted, clears, conflicts, done, waits;
  logic [ENTRIES*2-1:0] kinds;
  logic [ENTRIES*ROW_ADDRESS_BITS-1:0] rows;
  logic [ENTRIES*ASID_BITS-1:0] asids;
  logic [ENTRIES*SUB_BITS-1:0] subs;
  logic [ENTRIES*VA_BITS-1:0] vas;
  logic [ENTRIES*64-1:0] ptes;
  logic [ID_BITS-1:0] id, latest, out;
  logic ready_entry, leaves;

  assign full  = valid == '1;
  assign empty = valid == '0;
  assign conflict = conflicts != '0;
  always_comb begin
    id = '0;
    for (int i = ENTRIES - 1; i >= 0; i--) if (!valid[i]) id = ID_BITS'(i);
  end
  always_ff @(posedge clk) if (allocate) latest <= id;

  stable_pick #(
      .N(ENTRIES)
  ) walks (
      .clk,
      .rst,
      .requests(waits),
      .ready(walk_ready),
      .valid(walk_valid),
      .index(walk_id)
  );
  stable_pick #(
      .N(ENTRIES)
  ) writers (
      .clk,
      .rst,
      .requests(done),
      .ready(leaves),
      .valid(ready_entry),
      .index(out)
  );
  // An insertion without a page, and an erasure without a row, leave without a write.
  logic dropped;
  assign dropped = clears[out] ? kinds[out*2+:2] != 2'd2 : faulted[out];
  assign write_valid = ready_entry && !dropped;
  assign leaves = ready_entry && (dropped || write_ready);
  assign ended = leaves;
  assign outcome = dropped ? 2'd0 : kinds[out*2+:2];

  assign walk_asid = asids[walk_id*ASID_BITS+:ASID_BITS];
  assign walk_vpn = vas[walk_id*VA_BITS+PAGE_BITS+:VPN_BITS];
  assign write_row = rows[out*ROW_ADDRESS_BITS+:ROW_ADDRESS_BITS];
  always_comb begin
    write_word = '0;
    write_pte  = '0;
    if (!clears[out]) begin
      write_word[VA_BITS+:SUB_BITS] = subs[out*SUB_BITS+:SUB_BITS];
      write_word[VA_BITS-1:0] = vas[out*VA_BITS+:VA_BITS];
      write_pte = ptes[out*64+:64];
    end
  end

  generate
    for (genvar i = 0; i < ENTRIES; i++) begin : g_entry
      logic begins, walked;
      assign begins = allocate && id == ID_BITS'(i);
      assign walked = walked_valid && walked_id == ID_BITS'(i);
      assign conflicts[i] = valid[i] &&
          rows[i*ROW_ADDRESS_BITS+SHIFT+:ROW_ADDRESS_BITS-SHIFT] == row[ROW_ADDRESS_BITS-1:SHIFT];
      assign done[i] = valid[i] && is_scanned[i] && is_walked[i];
      assign waits[i] = valid[i] && !asked[i];
      always_ff @(posedge clk) begin
        if (rst) valid[i] <= 1'b0;
        else if (begins) valid[i] <= 1'b1;
        else if (leaves && out == ID_BITS'(i)) valid[i] <= 1'b0;
        if (begins) begin
          is_scanned[i] <= 1'b0;
          is_walked[i] <= erases;
          asked[i] <= erases;
          clears[i] <= erases;
          rows[i*ROW_ADDRESS_BITS+:ROW_ADDRESS_BITS] <= row;
          asids[i*ASID_BITS+:ASID_BITS] <= asid;
          subs[i*SUB_BITS+:SUB_BITS] <= sub;
          vas[i*VA_BITS+:VA_BITS] <= va;
        end else begin
          if (walk_valid && walk_ready && walk_id == ID_BITS'(i)) asked[i] <= 1'b1;
          if (walked) begin
            is_walked[i] <= 1'b1;
            faulted[i] <= !walked_pte[0];
            ptes[i*64+:64] <= walked_pte;
          end
          if (scanned && latest == ID_BITS'(i)) begin
            is_scanned[i] <= 1'b1;
            kinds[i*2+:2] <= scanned_kind;
            if (WAYS > 1) rows[i*ROW_ADDRESS_BITS+:WAY_BITS] <= scanned_way;
          end
        end
      end
    end
  endgenerate

`ifdef FORMAL
  assign formal_unscanned = valid & ~is_scanned;
  assign formal_latest = latest;
  always_comb begin
    formal_entries  = '0;
    formal_conflict = 1'b0;
    for (int i = 0; i < ENTRIES; i++) begin
      formal_entries = formal_entries + 8'(valid[i]);
      if (valid[i] && rows[i*ROW_ADDRESS_BITS+SHIFT+:ROW_ADDRESS_BITS-SHIFT] ==
          formal_row[ROW_ADDRESS_BITS-1:SHIFT])
        formal_conflict = 1'b1;
    end
  end
  // Any two entries.
  (* anyconst *)logic [ID_BITS-1:0] a, b;
  always_ff @(posedge clk) begin
    if (!rst) begin
      // The walker answers each walk once.
      assume (!walked_valid || (valid[walked_id] && asked[walked_id] && !is_walked[walked_id]));
      // No entry is overwritten, and none leaves twice or before its scan and its walk have ended.
      assert (!allocate || (!full && !valid[id]));
      assert (!leaves || done[out]);
      assert (!walk_valid || (valid[walk_id] && !asked[walk_id] && !clears[walk_id]));
      // Two insertions under way never have the same set.
      if (a != b && valid[a] && valid[b])
        assert (rows[a*ROW_ADDRESS_BITS+SHIFT+:ROW_ADDRESS_BITS-SHIFT] !=
            rows[b*ROW_ADDRESS_BITS+SHIFT+:ROW_ADDRESS_BITS-SHIFT]);
      assert ((valid & is_walked & ~asked) == '0);
      assert ((valid & clears & ~is_walked) == '0);
    end
  end
`endif
endmodule
