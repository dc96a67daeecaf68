// Generated from the simulator's constants and from mehpt on mehpt-table3 (rtl/cosim/src/header.rs).
`ifndef L2P_SVH
`define L2P_SVH
`define L2P_WAYS 3
`define L2P_SIZES 3
`define L2P_ENTRIES 32
`define L2P_ENTRY_BITS 7
`define L2P_VA_BITS 48
`define L2P_PA_BITS 46
`define L2P_PAGE_BITS 12
`define L2P_LEVEL_BITS 9
`define L2P_CLUSTER_BITS 3
`define L2P_LINE_BITS 6
`define L2P_SLOT_BITS 26
`define L2P_BASE_BITS 33
`define L2P_CHUNK_KINDS 4
`define L2P_CHUNK_KIND_BITS 2
`define L2P_CHUNK_SLOT_BITS 32'h14110e07
`define L2P_MOST_CHUNK_SLOT_BITS 20
`define L2P_POLYNOMIAL 64'h42f0e1eba9ea3693
`define L2P_FIRST_FIELD 52
`define L2P_FIELD 21
`define L2P_FIELD_WAYS 3
`define L2P_HEADER_BITS 5
`define L2P_HEADER_SMALL 0
`define L2P_HEADER_HUGE 1
`define L2P_HEADER_GIANT 2
`define L2P_HEADER_WAY_SHIFT 3
`define L2P_HEADER_WAY_BITS 2
`define L2P_LATENCY 6
`define L2P_WRITE_ENTRY 2'd0
`define L2P_WRITE_SLOTS 2'd1
`define L2P_WRITE_POINTER 2'd2
`define L2P_WRITE_CHUNKS 2'd3
`endif
