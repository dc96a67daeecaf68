`include "stlt_unit.svh"

// STLT's system translation unit (section III-D): `loadVA` and `insertSTLT` over a table of rows in
// memory, with the buffers of table I.
//
// An instruction enters when the scan of the one before has ended. Its set is requested from the L1 data
// cache in the same cycle, and the rows arrive one a cycle over a port of 16 bytes. No register holds a
// whole set. `loadVA` then checks the invalid pages and replies. `insertSTLT` keeps an entry of the
// insertion buffer until its scan and its walk have ended and the row is written.
//
// Memory performs reads and writes in the order in which it takes them. An instruction waits while the
// insertion buffer holds an insertion into its set. The kernel changes the table's registers or searches
// the table only while `idle` is set.
module stlt_unit #(
    parameter int WAYS = `STLT_UNIT_WAYS,
    parameter bit SATURATES = `STLT_UNIT_SATURATES,
    // Random numbers come from the inputs, not from the unit's own source.
    parameter int EXTERNAL_RANDOM = 0,
    localparam int VA_BITS = `STLT_UNIT_VA_BITS,
    localparam int PA_BITS = `STLT_UNIT_PA_BITS,
    localparam int PAGE_BITS = `STLT_UNIT_PAGE_BITS,
    localparam int ASID_BITS = `STLT_UNIT_ASID_BITS,
    localparam int ROW_BITS = `STLT_UNIT_ROW_BITS,
    localparam int MASK_BITS = `STLT_UNIT_MOST_ROWS_BITS - `STLT_UNIT_FEWEST_ROWS_BITS,
    localparam int SUB_BITS = `STLT_UNIT_SUB_BITS,
    localparam int COUNTER_BITS = `STLT_UNIT_COUNTER_BITS,
    localparam int COUNT_BITS = (1 << COUNTER_BITS) - 1,
    localparam int PICK_BITS = `STLT_UNIT_PICK_BITS,
    localparam int INSERTIONS = `STLT_UNIT_INSERTIONS,
    localparam int IPB_ENTRIES = `STLT_UNIT_IPB_ENTRIES,
    localparam int STB_ENTRIES = `STLT_UNIT_STB_ENTRIES,
    localparam int VPN_BITS = VA_BITS - PAGE_BITS,
    localparam int ROW_ADDRESS_BITS = PA_BITS - ROW_BITS,
    localparam int FRAME_BITS = PA_BITS - PAGE_BITS,
    localparam int ID_BITS = $clog2(INSERTIONS),
    localparam int WAY_BITS = WAYS > 1 ? $clog2(WAYS) : 1
) (
    input  logic                        clk,
    input  logic                        rst,
    // Registers CRS, written by the kernel: first frame of the table, and its rows as a mask of the
    // row numbers' bits above those of the smallest table. A table begins at a multiple of its size.
    input  logic                        crs_write,
    input  logic                        crs_on,
    input  logic [      FRAME_BITS-1:0] crs_base,
    input  logic [       MASK_BITS-1:0] crs_mask,
    output logic                        idle,
    // Instructions, in program order.
    input  logic                        req_valid,
    output logic                        req_ready,
    input  logic                        req_insert,
    input  logic [       ASID_BITS-1:0] req_asid,
    input  logic [                63:0] req_integer,
    input  logic [                63:0] req_va,
    // Result of `loadVA`: the record's address, or 0.
    output logic                        res_valid,
    output logic [         VA_BITS-1:0] res_va,
    // Sets that are read: the number of the first row. All rows follow in order.
    output logic                        set_valid,
    input  logic                        set_ready,
    output logic [ROW_ADDRESS_BITS-1:0] set_row,
    input  logic                        row_valid,
    input  logic [                63:0] row_word,
    input  logic [                63:0] row_pte,
    // Rows that are written: the counter alone, or all 16 bytes.
    output logic                        write_valid,
    input  logic                        write_ready,
    output logic                        write_counter,
    output logic [ROW_ADDRESS_BITS-1:0] write_row,
    output logic [                63:0] write_word,
    output logic [                63:0] write_pte,
    // Walks of insertions. An entry without its lowest bit stands for a page fault.
    output logic                        walk_valid,
    input  logic                        walk_ready,
    output logic [         ID_BITS-1:0] walk_id,
    output logic [       ASID_BITS-1:0] walk_asid,
    output logic [        VPN_BITS-1:0] walk_vpn,
    input  logic                        walked_valid,
    input  logic [         ID_BITS-1:0] walked_id,
    input  logic [                63:0] walked_pte,
    // The kernel's instructions on the invalid page buffer. A page has a size: 0 is 4 KB, 1 is 2 MB, 2 is
    // 1 GB.
    input  logic                        ipb_insert,
    input  logic                        ipb_clear,
    input  logic [        VPN_BITS-1:0] ipb_vpn,
    input  logic [                 1:0] ipb_size,
    output logic                        ipb_full,
    // Misses of the last TLB look up the STB; the answer is known in the next cycle.
    input  logic                        stb_valid,
    input  logic [       ASID_BITS-1:0] stb_asid,
    input  logic [        VPN_BITS-1:0] stb_vpn,
    input  logic                        stb_store,
    output logic                        stb_hit,
    output logic [                63:0] stb_pte,
    // Shootdowns of the STB: a page, or all of an address space.
    input  logic                        shoot_valid,
    input  logic                        shoot_all,
    input  logic [       ASID_BITS-1:0] shoot_asid,
    input  logic [        VPN_BITS-1:0] shoot_vpn,
    input  logic [                 1:0] shoot_size,
    // Random numbers, used only with EXTERNAL_RANDOM.
    input  logic [       PICK_BITS-1:0] random_pick,
    input  logic [      COUNT_BITS-1:0] random_count,
    // Events: an insertion or erasure has ended (0 no effect, 1 new row, 2 matching row, 3 replaced row);
    // an insertion was dropped as it came; `loadVA` has found its page invalid.
    output logic                        event_inserted,
    output logic [                 1:0] event_outcome,
    output logic                        event_dropped,
    output logic                        event_invalid
);
  typedef enum logic [1:0] {
    IDLE,
    SCAN,
    CHECK,
    REPLY
  } state_t;
  state_t state;

  // CRS.
  logic on;
  logic [FRAME_BITS-1:0] base;
  logic [MASK_BITS-1:0] mask;
  always_ff @(posedge clk) begin
    if (rst) on <= 1'b0;
    else if (crs_write) on <= crs_on;
    if (crs_write) begin
      base <= crs_base;
      mask <= crs_mask;
    end
  end

  logic [ROW_ADDRESS_BITS-1:0] row;
  address_generator #(
      .WAYS(WAYS)
  ) address_generator (
      .base,
      .mask,
      .integer_(req_integer),
      .row
  );
  assign set_row = row;

  logic canonical, erases, conflict, full, begins, taken, counts;
  assign canonical = req_va[63:VA_BITS] == '0;
  assign erases = req_va == '0;
  // A table that is off answers 0, and an address that no row holds is dropped: both need no set.
  logic needs_set;
  assign needs_set = on && (!req_insert || canonical);
  assign begins = state == IDLE && !counts && !conflict && !(req_insert && full);
  assign set_valid = req_valid && begins && needs_set;
  assign req_ready = begins && (set_ready || !needs_set);
  assign taken = req_valid && req_ready;

  // The instruction that is scanned.
  logic inserts;
  logic [ASID_BITS-1:0] asid;
  logic [SUB_BITS-1:0] sub;
  logic [ROW_ADDRESS_BITS-1:0] first_row;

  // Random numbers are taken ahead of time (section III-E): they are ready when an instruction begins.
  logic [PICK_BITS-1:0] pick_now;
  logic [COUNT_BITS-1:0] count_now, count_random;
  logic [(WAYS+1)*WAY_BITS-1:0] picks_now, picks;
  generate
    if (EXTERNAL_RANDOM != 0) begin : g_external
      assign pick_now  = random_pick;
      assign count_now = random_count;
    end else begin : g_source
      logic unused_random;
      assign unused_random = &{1'b0, random_pick, random_count};
      random_source random_source (
          .clk,
          .rst,
          .pick (pick_now),
          .count(count_now)
      );
    end
    for (genvar n = 0; n <= WAYS; n++) begin : g_pick
      // One of n, by scaling.
      localparam int BITS = PICK_BITS + WAY_BITS;
      logic [BITS-1:0] scaled;
      logic unused_fraction;
      assign scaled = BITS'(pick_now) * BITS'(n);
      assign picks_now[n*WAY_BITS+:WAY_BITS] = scaled[BITS-1:PICK_BITS];
      assign unused_fraction = &{1'b0, scaled[PICK_BITS-1:0]};
    end
  endgenerate

`ifdef FORMAL
  logic [WAY_BITS-1:0] formal_way;
  logic formal_conflict;
  logic [7:0] formal_entries;
  logic [INSERTIONS-1:0] formal_unscanned;
  logic [ID_BITS-1:0] formal_latest;
`endif
  logic last, found;
  logic [WAY_BITS-1:0] found_way, target_way;
  logic [1:0] target_kind;
  logic [VA_BITS-1:0] found_va;
  logic [63:0] found_pte;
  logic [COUNTER_BITS-1:0] found_counter;
  row_match #(
      .WAYS(WAYS)
  ) row_match (
      .clk,
      .start(taken),
      .valid(row_valid && state == SCAN),
      .word(row_word),
      .pte(row_pte),
      .sub,
      .picks,
      .last,
      .found,
      .found_way,
      .found_va,
      .found_pte,
      .found_counter,
      .target_way,
`ifdef FORMAL
      .formal_way,
`endif
      .target_kind
  );

  always_ff @(posedge clk) begin
    if (rst) state <= IDLE;
    else
      case (state)
        IDLE:
        if (taken && needs_set) state <= SCAN;
        else if (taken && !req_insert) state <= REPLY;
        SCAN:    if (last) state <= inserts ? IDLE : CHECK;
        CHECK:   state <= REPLY;
        default: state <= IDLE;
      endcase
    if (taken) begin
      inserts <= req_insert;
      asid <= req_asid;
      sub <= req_integer[SUB_BITS-1:0];
      first_row <= row;
      picks <= picks_now;
      count_random <= count_now;
    end
  end

  // The check of the page, and the reply.
  logic invalid, invalid_q, replies, hit;
  invalid_page_buffer #(
      .ENTRIES(IPB_ENTRIES)
  ) ipb (
      .clk,
      .rst,
      .insert(ipb_insert),
      .clear(ipb_clear),
      .vpn(ipb_vpn),
      .size(ipb_size),
      .full(ipb_full),
      .lookup_vpn(found_va[VA_BITS-1:PAGE_BITS]),
      .hit(invalid)
  );
  logic checked;
  always_ff @(posedge clk) begin
    if (rst) checked <= 1'b0;
    else checked <= state == CHECK;
    if (state == CHECK) invalid_q <= invalid;
  end
  assign replies = state == REPLY;
  assign hit = checked && found && !invalid_q;
  assign event_invalid = checked && found && invalid_q;
  always_ff @(posedge clk) begin
    if (rst) res_valid <= 1'b0;
    else res_valid <= replies;
    if (replies) res_va <= hit ? found_va : '0;
  end

  translation_buffer #(
      .ENTRIES(STB_ENTRIES)
  ) stb (
      .clk,
      .rst,
      .insert(hit && found_pte[0]),
      .asid,
      .vpn(found_va[VA_BITS-1:PAGE_BITS]),
      .pte(found_pte),
      .lookup_valid(stb_valid),
      .lookup_asid(stb_asid),
      .lookup_vpn(stb_vpn),
      .lookup_store(stb_store),
      .hit(stb_hit),
      .hit_pte(stb_pte),
      .shoot_valid,
      .shoot_all,
      .shoot_asid,
      .shoot_vpn,
      .shoot_size
  );

  // The counter of the row that was found is written back, incremented or not (table III).
  logic [COUNTER_BITS-1:0] counter;
  logic [ROW_ADDRESS_BITS-1:0] counted_row;
  counter_update #(
      .SATURATES(SATURATES)
  ) counter_update (
      .counter(found_counter),
      .random (count_random),
      .next   (counter)
  );
  always_ff @(posedge clk) begin
    if (rst) counts <= 1'b0;
    else if (checked && found) counts <= 1'b1;
    else if (write_ready && write_counter) counts <= 1'b0;
  end
  assign counted_row = WAYS > 1 ? first_row | ROW_ADDRESS_BITS'(found_way) : first_row;

  logic inserted_valid, inserted_ready, buffer_empty;
  logic [ROW_ADDRESS_BITS-1:0] inserted_row;
  logic [63:0] inserted_word, inserted_pte;
  insertion_buffer #(
      .ENTRIES(INSERTIONS),
      .WAYS(WAYS)
  ) insertion_buffer (
      .clk,
      .rst,
      .allocate(taken && req_insert && needs_set),
      .row,
      .asid(req_asid),
      .sub(req_integer[SUB_BITS-1:0]),
      .va(req_va[VA_BITS-1:0]),
      .erases,
      .full,
      .empty(buffer_empty),
      .conflict,
      .scanned(last && inserts),
      .scanned_way(target_way),
      .scanned_kind(target_kind),
      .walk_valid,
      .walk_ready,
      .walk_id,
      .walk_asid,
      .walk_vpn,
      .walked_valid,
      .walked_id,
      .walked_pte,
      .write_valid(inserted_valid),
      .write_ready(inserted_ready),
      .write_row(inserted_row),
      .write_word(inserted_word),
      .write_pte(inserted_pte),
`ifdef FORMAL
      .formal_row(first_row),
      .formal_conflict,
      .formal_entries,
      .formal_unscanned,
      .formal_latest,
`endif
      .ended(event_inserted),
      .outcome(event_outcome)
  );
  assign event_dropped = taken && req_insert && !needs_set;

  // A write that was offered stays until memory takes it.
  logic inserted_offered, inserted_first;
  always_ff @(posedge clk) begin
    if (rst) inserted_offered <= 1'b0;
    else inserted_offered <= inserted_valid && inserted_first && !write_ready;
  end
  assign inserted_first = !counts || inserted_offered;
  assign write_valid = counts || inserted_valid;
  assign write_counter = !inserted_first;
  assign write_row = write_counter ? counted_row : inserted_row;
  assign write_word = write_counter ? {counter, (64 - COUNTER_BITS)'(0)} : inserted_word;
  assign write_pte = inserted_pte;
  assign inserted_ready = write_ready && !write_counter;
  assign idle = state == IDLE && !counts && buffer_empty && !res_valid;

`ifdef FORMAL
  logic started = 1'b0;
  always_ff @(posedge clk) started <= 1'b1;
  always_comb if (!started) assume (rst);

  logic offered, offered_counter;
  logic [ROW_ADDRESS_BITS-1:0] offered_row;
  logic [63:0] offered_word, offered_pte;
  // Each `loadVA` that was taken gets one result, and each `insertSTLT` ends once. Modulo 2^8.
  logic [7:0] loads, insertions, rows_left;
  always_ff @(posedge clk) begin
    if (rst) begin
      loads <= '0;
      insertions <= '0;
      rows_left <= '0;
    end else begin
      loads <= loads + 8'(taken && !req_insert) - 8'(res_valid);
      insertions <= insertions + 8'(taken && req_insert) - 8'(event_inserted) - 8'(event_dropped);
      rows_left <= set_valid && set_ready ? 8'(WAYS) : rows_left - 8'(row_valid);
    end
    if (!rst && started) begin
      // Memory answers each set once.
      assume (!row_valid || rows_left != '0);
      assert ((rows_left != '0) == (state == SCAN));
      if (state == SCAN) assert (rows_left == 8'(WAYS) - 8'(formal_way));
      assert (loads == 8'(state != IDLE && !inserts) + 8'(res_valid));
      assert (!(checked && state != REPLY));
      assert (!(state == CHECK && inserts) && !(state == REPLY && inserts));
      assert (insertions == formal_entries);
      // The entry whose set is scanned is the latest one, and all others were scanned.
      assert (formal_unscanned == (state == SCAN && inserts ? INSERTIONS'(1) << formal_latest : '0));
      // A load is never scanned while an insertion into its set is under way, and a counter is written
      // before the next set is read.
      if (state != IDLE && !inserts) assert (!formal_conflict);
      if (counts) assert (state == IDLE);
      // A write that memory has not taken is offered again.
      if (offered) begin
        assert (write_valid && write_counter == offered_counter && write_row == offered_row);
        assert (write_word == offered_word && (write_counter || write_pte == offered_pte));
      end
      assert (!inserted_offered || inserted_valid);
    end
  end
  always_ff @(posedge clk) begin
    offered <= !rst && write_valid && !write_ready;
    offered_counter <= write_counter;
    offered_row <= write_row;
    offered_word <= write_word;
    offered_pte <= write_pte;
  end
`endif
endmodule
